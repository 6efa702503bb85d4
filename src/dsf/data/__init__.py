"""From files to views: data sets, the store, augmentation."""
