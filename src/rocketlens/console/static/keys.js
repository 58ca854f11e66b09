// Keyboard shortcuts: every page can be used without a mouse.
// A closed dialog keeps the focus until the next frame.
const isTyping = (target) => target.closest("input:not([type=checkbox]), select, textarea, dialog[open]") !== null;

export function startKeys(announce) {
  const rows = () => [...document.querySelectorAll("tr[data-path]")].filter((row) => !row.hidden);
  let selected = null;

  function move(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.indexOf(selected);
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
    selected?.classList.remove("selected");
    selected = next;
    selected.classList.add("selected");
    selected.querySelector("a")?.focus({ preventScroll: true });
    selected.scrollIntoView({ block: "nearest" });
  }

  const actions = {
    "/": () => { const box = document.querySelector("[data-focus]"); if (box) { box.closest("details")?.setAttribute("open", ""); box.focus(); box.select(); } else location.href = "/"; },
    j: () => move(1),
    k: () => move(-1),
    c: async () => { await navigator.clipboard.writeText(location.href); announce(document.body.dataset.copied); },
    x: () => selected?.querySelector("input[type=checkbox]")?.click(),
    r: () => document.querySelector("a[data-key=r]")?.click(),
    s: () => {
      const save = document.getElementById("save");
      if (!save) { location.href = "/saved"; return; }
      save.open = true;
      save.querySelector("input[name=title], a").focus();
    },
    t: () => { location.href = "/topics"; },
    g: () => { location.href = "/groups"; },
    b: () => { location.href = "/brokers"; },
    p: () => { location.href = "/pipeline"; },
    "?": () => document.getElementById("keys").showModal(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "Escape" && document.activeElement?.matches("input")) document.activeElement.blur();
    if (isTyping(event.target)) return;
    if (event.key === "Enter" && selected && !event.target.closest("a, button, summary")) location.href = selected.dataset.path;
    const action = actions[event.key];
    if (action) { event.preventDefault(); action(); }
  });
}
