// Draws each chart in the place before its description.
"use strict";
for (const source of document.querySelectorAll("script[data-chart]")) {
  const place = source.previousElementSibling;
  const options = {
    mode: "vega-lite",
    renderer: "svg",
    actions: false,
    defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  };
  vegaEmbed(place, JSON.parse(source.textContent), options).catch((error) => {
    place.textContent = "This chart could not be drawn: " + error.message;
    console.error(error);
  });
}
