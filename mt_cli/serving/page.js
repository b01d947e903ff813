"use strict";
// Translates while one types: a request at a time, the newest text last.
const WAIT_MS = 250;
const DOUBTED = Math.log(0.5); // words that are less likely are underlined
const EXAMPLES = {
  de: [
    "Wo ist der Bahnhof?",
    "Kannst du mir bitte helfen?",
    "Das Wetter ist heute schön.",
    "Zwei Hunde rennen durch den Schnee.",
    "Eine Frau liest in einem Park ein Buch.",
    "Ein kleiner Junge spielt mit einem roten Ball.",
  ],
};
const byId = (id) => document.getElementById(id);
const source = byId("source");
const target = byId("target");
const status = byId("status");
let settings = null;
let timer = 0;
let current = null; // of the request that is under way

async function ask(path, body, signal) {
  const options = body && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ api_key: byId("key").value, ...body }),
    signal,
  };
  const response = await fetch(path, options);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function say(text, isError = false) {
  status.textContent = text;
  status.classList.toggle("error", isError);
}

function showCount() {
  if (!settings) return; // they come with the first answer
  const length = [...source.value].length;
  byId("count").textContent = `${length} of ${settings.charLimit} characters`;
}

function showExamples() {
  byId("examples").hidden = source.value !== "";
}

function fill(list, texts, tag) {
  list.replaceChildren(
    ...texts.map((text) => {
      const item = document.createElement(tag);
      item.textContent = text;
      return item;
    }),
  );
}

async function translate() {
  if (!settings) return;
  current?.abort();
  const mine = (current = new AbortController());
  showWords(null);
  const text = source.value;
  if (!text.trim()) {
    target.textContent = "";
    fill(byId("alternatives"), [], "li");
    say("");
    return;
  }
  target.classList.add("old");
  try {
    const answer = await ask(
      "translate",
      {
        q: text,
        source: settings.language.source.code,
        target: settings.language.target.code,
        alternatives: 3, // for any text, so that a line's translation stays when more are typed
      },
      mine.signal,
    );
    target.textContent = answer.translatedText;
    const others = answer.alternatives.filter((other) => other !== answer.translatedText);
    fill(byId("alternatives"), text.includes("\n") ? [] : others, "li");
    say("");
    const words = await ask("words", { q: text }, mine.signal);
    showWords(words);
    underlineDoubted(words.words);
  } catch (error) {
    if (error.name !== "AbortError") say(error.message || "The server does not answer.", true);
  } finally {
    if (mine === current) target.classList.remove("old");
  }
}

function underlineDoubted(words) {
  const text = target.textContent;
  const known = words.map((each) => each.word).join(" ");
  const begin = text.indexOf(known); // what is copied may stand before it
  if (begin < 0) return;
  const marked = words.flatMap(({ word, logProb }) => {
    if (logProb >= DOUBTED) return [word, " "];
    const mark = document.createElement("u");
    mark.textContent = word;
    mark.title = `The model is ${Math.round(100 * Math.exp(logProb))} % sure of this word.`;
    return [mark, " "];
  });
  target.replaceChildren(text.slice(0, begin), ...marked.slice(0, -1), text.slice(begin + known.length));
}

const readable = (token) => token.replaceAll("▁", " ").replaceAll("￭", "").trim() || "·";

function showWords(words) {
  const before = byId("words-source");
  const after = byId("words-target");
  fill(before, (words?.source ?? []).map(readable), "span");
  fill(after, (words?.translation ?? []).map(readable), "button");
  [...after.children].forEach((button, place) => {
    button.type = "button";
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      const linked = new Set(words.alignment.filter((link) => link[1] === place).map((link) => link[0]));
      [...after.children].forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
      [...before.children].forEach((each, i) => each.classList.toggle("linked", linked.has(i)));
      byId("words-hint").textContent = `“${button.textContent}” from ${[...linked].map((i) => `“${before.children[i].textContent}”`).join(", ")}`;
    });
  });
}

byId("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(target.textContent);
    say("Copied.");
  } catch {
    say("The browser does not let this page copy.", true);
  }
});

byId("key-line").addEventListener("submit", (event) => {
  event.preventDefault(); // Enter only asks anew
  translate();
});

source.addEventListener("input", () => {
  showCount();
  showExamples();
  clearTimeout(timer);
  timer = setTimeout(translate, WAIT_MS);
});

ask("frontend/settings").then((answer) => {
  settings = answer;
  const { source: from, target: to } = settings.language;
  byId("source-language").textContent = from.name;
  byId("target-language").textContent = to.name;
  source.lang = from.code;
  target.lang = to.code;
  source.maxLength = settings.charLimit;
  byId("key-line").hidden = !settings.keyRequired;
  byId("model").textContent = `${settings.model}, ${from.name} to ${to.name}. It knows only text like its training data.`;
  fill(byId("examples"), EXAMPLES[from.code] ?? [], "button");
  for (const button of byId("examples").children) {
    button.type = "button";
    button.addEventListener("click", () => {
      source.value = button.textContent;
      source.focus();
      source.dispatchEvent(new Event("input"));
    });
  }
  showExamples();
  document.title = `${from.name} to ${to.name}`;
  showCount();
  if (source.value) translate();
}, () => say("The server does not answer.", true));
