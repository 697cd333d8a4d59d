// Replaces parts of a page by newly rendered ones. Every page works without it.
"use strict";

const swap = (html) => {
  const made = new DOMParser().parseFromString(html, "text/html");
  for (const fresh of [...made.body.children]) {
    const old = fresh.id && document.getElementById(fresh.id);
    if (!old) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    old.replaceWith(document.adoptNode(fresh));
    if (focused) document.getElementById(focused)?.focus();
  }
};

// <main data-live="/path/of/events">: each message holds elements that replace those of the same id.
for (const place of document.querySelectorAll("[data-live]")) {
  const source = new EventSource(place.dataset.live);
  source.onmessage = (message) => swap(message.data);
  source.onopen = () => document.documentElement.classList.add("is-live");
  source.onerror = () => document.documentElement.classList.remove("is-live");
  addEventListener("pagehide", () => source.close());
}

// <form data-preview="/path">: the form is sent there after input, and the response's elements are put in place.
for (const form of document.querySelectorAll("form[data-preview]")) {
  let waiting = 0, asked = null;
  const ask = async () => {
    asked?.abort();
    const mine = (asked = new AbortController());
    try {
      const answer = await fetch(form.dataset.preview, {
        method: "POST",
        body: new URLSearchParams(new FormData(form)),
        signal: mine.signal,
      });
      if (answer.ok) swap(await answer.text());
    } catch (problem) {
      if (problem.name !== "AbortError") console.warn(problem.name);
    }
  };
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(ask, 400);
  });
}

for (const button of document.querySelectorAll("button[data-print]")) {
  button.hidden = false;
  button.addEventListener("click", () => print());
}
