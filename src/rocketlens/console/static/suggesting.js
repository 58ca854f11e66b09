// Suggests topic names in topic fields, and in the search box after "topic:".
const MAX_SHOWN = 50;
let names = null;

function known() {
  names ??= fetch("/api/topic-names", { headers: { accept: "application/json" } })
    .then((answer) => (answer.ok ? answer.json() : Promise.reject(answer.status)))
    .then((found) => found.names)
    // The next letter requests them again.
    .catch(() => { names = null; return []; });
  return names;
}

// The text before the typed name, and the typed part of the name.
function begun(input) {
  if (input.dataset.suggests === "topic") return ["", input.value];
  const word = /^(.*(?:^|\s)topic:)(\S*)$/.exec(input.value);
  return word ? [word[1], word[2]] : null;
}

export function startSuggesting() {
  const list = document.getElementById("suggestions");
  if (!list) return;
  for (const input of document.querySelectorAll("input[data-suggests]")) {
    input.setAttribute("list", list.id);
    const suggest = async () => {
      const part = begun(input);
      const all = part ? await known() : [];
      if (document.activeElement !== input) return;
      const typed = part?.[1].toLowerCase();
      const fitting = all.filter((name) => name.toLowerCase().includes(typed));
      const first = fitting.filter((name) => name.toLowerCase().startsWith(typed));
      const shown = [...new Set([...first, ...fitting])].slice(0, MAX_SHOWN);
      list.replaceChildren(...shown.map((name) => {
        const option = document.createElement("option");
        option.value = part[0] + name;
        return option;
      }));
    };
    input.addEventListener("focus", suggest);
    input.addEventListener("input", suggest);
    if (document.activeElement === input) suggest();
  }
}
