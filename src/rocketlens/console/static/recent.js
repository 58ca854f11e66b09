// The last searches of this browser, on the start page. The browser keeps them, separately for each
// user of the console.
const MAX_KEPT = 8;
const key = () => `rl_recent:${document.body.dataset.viewer}`;

function kept() {
  try {
    const found = JSON.parse(localStorage.getItem(key())) ?? [];
    return found.filter((each) => typeof each.href === "string" && each.href.startsWith("/search?"));
  } catch {
    return [];
  }
}

export function startRecent() {
  const area = document.getElementById("recent");
  if (area) {
    for (const { href, text } of kept()) {
      const link = document.createElement("a");
      link.href = href;
      link.textContent = text;
      const item = document.createElement("li");
      item.append(link);
      area.querySelector("ul").append(item);
    }
    area.hidden = area.querySelector("li") === null;
    return;
  }
  const asked = document.getElementById("answer")?.dataset.asked;
  if (!asked) return;
  const href = document.getElementById("answer").dataset.again;
  const others = kept().filter((each) => each.href !== href);
  try {
    localStorage.setItem(key(), JSON.stringify([{ href, text: asked }, ...others].slice(0, MAX_KEPT)));
  } catch {
    // The browser has no storage.
  }
}
