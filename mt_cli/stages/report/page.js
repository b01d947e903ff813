// Conveniences for the examples. Without this script the page loses the filter and the two buttons alone.
"use strict";

const tools = document.querySelector(".tools");
const filter = document.getElementById("filter");
const shown = document.getElementById("shown");
const examples = [...document.querySelectorAll(".examples > li")];
const maps = [...document.querySelectorAll("details.map")];

function setOpen(isOpen) {
  for (const map of maps) map.open = isOpen;
}

function showMatching() {
  const wanted = filter.value.trim().toLowerCase();
  let count = 0;
  for (const example of examples) {
    const texts = example.querySelector("dl").textContent.toLowerCase();
    example.hidden = !texts.includes(wanted);
    if (!example.hidden) count += 1;
  }
  shown.textContent = wanted ? `${count} of ${examples.length} examples` : "";
}

if (examples.length > 0) {
  tools.hidden = false;
  filter.addEventListener("input", showMatching);
  document.getElementById("open").addEventListener("click", () => setOpen(true));
  document.getElementById("close").addEventListener("click", () => setOpen(false));
}
