"""Each corruption once more, one image at a time, from its definition.

NumPy, SciPy, scikit-image and Pillow; (H, W, 3) bytes in, levels before they are cut off to bytes
out. ``chance`` has ``normal(*shape)`` and ``uniform(*shape, low, high)`` for one image.
"""

import io
import math

import numpy as np
from PIL import Image
from scipy import ndimage, stats
from skimage.color import hsv2rgb, rgb2hsv
from skimage.filters import gaussian

from dsf.data.corruptions.textures import find_textures


class FromNumpy:
    """Chance of NumPy's own."""

    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)

    def normal(self, *shape):
        return self.generator.normal(size=shape)

    def uniform(self, *shape, low=0.0, high=1.0):
        return self.generator.uniform(low, high, size=shape)


class OfSample:
    """The chance that ``Draws`` of one sample has."""

    def __init__(self, draws):
        self.draws = draws

    def normal(self, *shape):
        return self.draws.normal(*shape)[0].numpy()

    def uniform(self, *shape, low=0.0, high=1.0):
        return self.draws.uniform(*shape, low=low, high=high)[0].numpy()


def unit(image):
    return image / 255.0


def channels_first(chance, image, kind="normal"):
    height, width = image.shape[:2]
    return np.moveaxis(getattr(chance, kind)(3, height, width), 0, -1)


def gaussian_noise(image, constants, chance):
    return 255 * (unit(image) + constants[0] * channels_first(chance, image))


def speckle_noise(image, constants, chance):
    x = unit(image)
    return 255 * (x + x * constants[0] * channels_first(chance, image))


def shot_noise(image, constants, chance):
    rate = constants[0]
    counts = stats.poisson.ppf(channels_first(chance, image, "uniform"), unit(image) * rate)
    return 255 * counts / rate


def impulse_noise(image, constants, chance):
    drawn = channels_first(chance, image, "uniform")
    result = image.astype(float)
    result[drawn < constants[0]] = 0
    result[drawn < constants[0] / 2] = 255
    return result


def gaussian_blur(image, constants, chance):
    return 255 * gaussian(unit(image), sigma=constants[0], channel_axis=-1)


def disk(radius, alias):
    reach, taps = (8, 1) if radius <= 8 else (radius, 2)
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    kernel = (np.hypot(x, y) <= radius).astype(float)
    kernel /= kernel.sum()
    weights = np.exp(-(np.arange(-taps, taps + 1) ** 2) / (2 * alias**2))
    weights /= weights.sum()
    for axis in (0, 1):
        kernel = ndimage.correlate1d(kernel, weights, axis=axis, mode="mirror")
    return kernel


def defocus_blur(image, constants, chance):
    kernel = disk(*constants)
    planes = [ndimage.correlate(unit(image)[..., c], kernel, mode="mirror") for c in range(3)]
    return 255 * np.stack(planes, axis=-1)


def glass_blur(image, constants, chance):
    sigma, delta, passes = constants
    pixels = cut(255 * gaussian(unit(image), sigma=sigma, channel_axis=-1))
    height, width = image.shape[:2]
    for _ in range(passes):
        offsets = np.floor(chance.uniform(2, height, width, low=-delta, high=delta)).astype(int)
        for row in range(height - delta, delta, -1):
            for column in range(width - delta, delta, -1):
                right, down = offsets[:, row, column]
                pixels[row, column] = pixels[row + down, column + right]
    return 255 * gaussian(unit(pixels), sigma=sigma, channel_axis=-1)


def moved(image, radius, sigma, angle):
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    rows, columns = np.indices(image.shape[:2])
    total = np.zeros(image.shape)
    for step, weight in zip(steps, weights):
        down = math.ceil(step * math.sin(math.radians(angle)) - 0.5)
        right = math.ceil(step * math.cos(math.radians(angle)) - 0.5)
        row = np.clip(rows + down, 0, image.shape[0] - 1)
        column = np.clip(columns + right, 0, image.shape[1] - 1)
        total += weight * image[row, column]
    return cut(total + 0.5).astype(float)


def motion_blur(image, constants, chance):
    return moved(image, *constants, chance.uniform(low=-45, high=45))


def zoomed(image, factor):
    side = image.shape[0]
    part = math.ceil(side / factor)
    start = (side - part) // 2
    middle = image[start : start + part, start : start + part]
    large = ndimage.zoom(middle, (factor, factor, 1), order=1)
    surplus = (large.shape[0] - side) // 2
    return large[surplus : surplus + side, surplus : surplus + side]


def zoom_blur(image, constants, chance):
    every = [unit(image)] + [zoomed(unit(image), factor) for factor in np.arange(1, *constants)]
    return 255 * np.mean(every, axis=0)


def snow(image, constants, chance):
    mean, deviation, zoom, threshold, radius, sigma, share = constants
    flakes = mean + deviation * chance.normal(1, *image.shape[:2])[0]
    angle = chance.uniform(low=-135, high=-45)
    flakes = zoomed(flakes[..., None], zoom)[..., 0]
    flakes[flakes < threshold] = 0
    fallen = unit(moved(cut(255 * flakes), radius, sigma, angle))[..., None]
    x = unit(image)
    grey = (x @ [0.299, 0.587, 0.114])[..., None]
    x = share * x + (1 - share) * np.maximum(x, 1.5 * grey + 0.5)
    return 255 * (x + fallen + fallen[::-1, ::-1])


def frost(image, constants, chance):
    height, width = image.shape[:2]
    which, down, right = chance.uniform(3)
    with Image.open(find_textures()[int(5 * which)]) as picture:
        texture = np.asarray(picture.convert("RGB"))
    if height <= 64:
        texture = texture[2::5, 2::5]
    top = int(down * (texture.shape[0] - height))
    left = int(right * (texture.shape[1] - width))
    part = texture[top : top + height, left : left + width]
    return constants[0] * image + constants[1] * part


def plasma(noise, decay):
    side = len(noise)
    heights = np.zeros((side, side))
    step, amplitude = side, 100.0
    while step > 1:
        half = step // 2

        def raised(row, column, around, noise=noise, amplitude=amplitude):
            mean = np.mean([heights[y % side, x % side] for y, x in around])
            heights[row, column] = mean + amplitude**2 * noise[row, column]

        for row in range(half, side, step):
            for column in range(half, side, step):
                corners = [(row + y, column + x) for y in (-half, half) for x in (-half, half)]
                raised(row, column, corners)
        for row in range(0, side, half):
            for column in range(0, side, half):
                if (row // half + column // half) % 2:
                    cross = ((-half, 0), (half, 0), (0, -half), (0, half))
                    raised(row, column, [(row + y, column + x) for y, x in cross])
        step, amplitude = half, amplitude / decay
    return (heights - heights.min()) / (heights.max() - heights.min())


def fog(image, constants, chance):
    strength, decay = constants
    height, width = image.shape[:2]
    side = 2 ** math.ceil(math.log2(max(height, width)))
    cloud = plasma(chance.uniform(side, side, low=-1, high=1), decay)[:height, :width, None]
    x = unit(image)
    return 255 * (x + strength * cloud) * x.max() / (x.max() + strength)


def contrast(image, constants, chance):
    mean = unit(image).mean(axis=(0, 1))
    return 255 * ((unit(image) - mean) * constants[0] + mean)


def brightness(image, constants, chance):
    hsv = rgb2hsv(unit(image))
    hsv[..., 2] = np.clip(hsv[..., 2] + constants[0], 0, 1)
    return 255 * hsv2rgb(hsv)


def saturate(image, constants, chance):
    hsv = rgb2hsv(unit(image))
    hsv[..., 1] = np.clip(hsv[..., 1] * constants[0] + constants[1], 0, 1)
    return 255 * hsv2rgb(hsv)


def jpeg_compression(image, constants, chance):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=constants[0])
    return np.asarray(Image.open(file)).astype(float)


def pixelate(image, constants, chance):
    height, width = image.shape[:2]
    small = int(width * constants[0]), int(height * constants[0])
    picture = Image.fromarray(image).resize(small, Image.Resampling.BOX)
    return np.asarray(picture.resize((width, height), Image.Resampling.BOX)).astype(float)


def elastic_transform(image, constants, chance):
    side = image.shape[0]
    strength, sigma, shift = (side * constant for constant in constants)
    reach = side // 3
    before = side // 2 + reach * np.array([[1, 1], [1, -1], [-1, -1]])
    after = before + chance.uniform(3, 2, low=-shift, high=shift)
    noise = chance.uniform(2, side, side, low=-1, high=1)
    # The affine map from where points went back to where they were: [x y 1] times a 3 x 2 matrix.
    back = np.linalg.solve(np.column_stack([after, np.ones(3)]), before)
    rows, columns = np.indices((side, side)).astype(float)
    column, row = np.moveaxis(np.stack([columns, rows, np.ones_like(rows)], -1) @ back, -1, 0)
    places = np.floor(np.stack([row, column]) * 32 + 0.5) / 32
    planes = [
        ndimage.map_coordinates(unit(image)[..., c], places, order=1, mode="mirror")
        for c in range(3)
    ]
    right, down = (
        strength * gaussian(field, sigma=sigma, mode="reflect", truncate=3) for field in noise
    )
    places = np.stack([rows + down, columns + right])
    planes = [ndimage.map_coordinates(x, places, order=1, mode="reflect") for x in planes]
    return 255 * np.stack(planes, axis=-1)


def canny(layer, low, high):
    """(H, W) bytes to bool, pixel by pixel."""
    layer = layer.astype(int)
    x = ndimage.sobel(layer, axis=1, mode="nearest")
    y = ndimage.sobel(layer, axis=0, mode="nearest")
    strength = np.pad(np.abs(x) + np.abs(y), 1)
    kept = np.zeros(layer.shape, dtype=bool)
    for row, column in np.argwhere(strength[1:-1, 1:-1] > low):
        dx, dy = x[row, column], y[row, column]
        angle = math.degrees(math.atan2(abs(dy), abs(dx)))
        if angle < 22.5:
            step = (0, 1)
        elif angle > 67.5:
            step = (1, 0)
        else:
            step = (1, 1) if (dx < 0) == (dy < 0) else (1, -1)
        here = strength[row + 1, column + 1]
        before = strength[row + 1 - step[0], column + 1 - step[1]]
        beyond = strength[row + 1 + step[0], column + 1 + step[1]]
        diagonal = step[0] and step[1]
        kept[row, column] = here > before and (here > beyond or (here == beyond and not diagonal))
    chains, _ = ndimage.label(kept, structure=np.ones((3, 3)))
    strong = np.unique(chains[kept & (strength[1:-1, 1:-1] > high)])
    return np.isin(chains, strong[strong > 0])


def distance(edges, most):
    """The shortest way from each pixel to an edge in steps of 1, 1.4 and 2.1969, by formula."""
    result = np.full(edges.shape, float(most))
    rows, columns = np.indices(edges.shape)
    for row, column in np.argwhere(edges):
        far = np.maximum(abs(rows - row), abs(columns - column))
        near = np.minimum(abs(rows - row), abs(columns - column))
        knights = np.minimum(near, far - near)
        way = 2.1969 * knights + 1.4 * (near - knights) + (far - near - knights)
        result = np.minimum(result, way)
    return result


def equalised(values):
    counts = np.bincount(values.ravel(), minlength=256)
    lowest = np.flatnonzero(counts)[0]
    if counts[lowest] == values.size:
        return values
    sums = counts.cumsum() - counts[lowest]
    return np.rint(sums * (255 / (values.size - counts[lowest])))[values]


def water_relief(liquid):
    box = np.full((3, 3), 1.0)
    depth = distance(canny(liquid, 50, 150), 20)
    depth = cut(ndimage.correlate(depth, box, mode="mirror") / 9)
    kernel = np.array([[-2.0, -1, 0], [-1, 1, 1], [0, 1, 2]])
    relief = ndimage.correlate(equalised(depth).astype(float), kernel, mode="mirror")
    return np.floor(ndimage.correlate(np.clip(relief, 0, 255), box, mode="mirror") / 9 + 0.5)


def spatter(image, constants, chance):
    mean, deviation, sigma, threshold, strength, mud = constants
    liquid = gaussian(mean + deviation * chance.normal(1, *image.shape[:2])[0], sigma=sigma)
    x = unit(image)
    if mud:
        cover = gaussian((liquid > threshold).astype(float), sigma=strength)[..., None]
        cover[cover < 0.8] = 0
        return 255 * (x * (1 - cover)) + np.array([63, 42, 20]) * cover
    liquid = (255 * np.where(liquid < threshold, 0, liquid)).astype(int) % 256
    shine = (liquid * water_relief(liquid))[..., None]
    return 255 * x + strength * shine / max(shine.max(), 1) * np.array([175, 238, 238])


def cut(levels):
    """As bytes, cut off, but for whole numbers that are a rounding error too small."""
    return np.clip(np.asarray(levels) + 2.0**-20, 0, 255).astype(np.uint8)


FUNCTIONS = {
    function.__name__: function
    for function in (
        gaussian_noise,
        shot_noise,
        impulse_noise,
        defocus_blur,
        glass_blur,
        motion_blur,
        zoom_blur,
        snow,
        frost,
        brightness,
        contrast,
        elastic_transform,
        pixelate,
        jpeg_compression,
        speckle_noise,
        gaussian_blur,
        spatter,
        saturate,
        fog,
    )
}
