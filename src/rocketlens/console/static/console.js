// Enhances pages that also work without a script: streamed results, further results, keys, copying.
import { startChoosing } from "./choosing.js";
import { startKeeping } from "./keeping.js";
import { startKeys } from "./keys.js";
import { startNarrowing } from "./narrowing.js";
import { startRecent } from "./recent.js";
import { startRefresh } from "./refresh.js";
import { startResults } from "./results.js";
import { startSuggesting } from "./suggesting.js";

document.documentElement.classList.add("scripted");
// From now on, the server can send a page before its answer, which is streamed.
document.cookie = "rl_script=1; path=/; max-age=31536000; samesite=lax";

const status = document.getElementById("status");

export function announce(text) {
  status.textContent = text;
}

async function copy(button) {
  await navigator.clipboard.writeText(button.dataset.copy);
  const before = button.textContent;
  button.textContent = `✓ ${document.body.dataset.copied}`;
  announce(document.body.dataset.copied);
  setTimeout(() => { button.textContent = before; }, 1500);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
  const opener = event.target.closest("[data-opens]");
  if (opener) document.getElementById(opener.dataset.opens).showModal();
});

// Select the wrong part of a filter, so that typing replaces it.
const wrong = document.querySelector("input[data-error-at]");
if (wrong) {
  const at = Number(wrong.dataset.errorAt);
  wrong.focus();
  wrong.setSelectionRange(at, Math.min(at + 1, wrong.value.length));
}

for (const form of document.querySelectorAll("form[data-submits]")) {
  form.addEventListener("change", () => form.submit());
}

for (const input of document.querySelectorAll("[data-filters]")) {
  const filter = () => {
    const words = input.value.toLowerCase();
    const rows = document.getElementById(input.dataset.filters)?.rows ?? [];
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(words);
  };
  input.addEventListener("input", filter);
  // A live list has other rows then.
  document.addEventListener("refreshed", filter);
}

// On a narrow screen, scroll the menu to the current page.
const menu = document.querySelector(".top nav");
const open = menu?.querySelector("[aria-current]");
if (open) menu.scrollLeft = open.offsetLeft - menu.offsetLeft - (menu.clientWidth - open.offsetWidth) / 2;

startKeys(announce);
startResults(announce);
startRefresh(announce);
startChoosing();
startKeeping(announce);
startSuggesting();
startNarrowing();
startRecent();
