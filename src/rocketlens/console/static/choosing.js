// Rows that are chosen, to be sent again: how many there are, while there are some.
export function startChoosing() {
  const show = () => {
    const form = document.getElementById("chosen");
    if (!form) return;
    const count = document.querySelectorAll("input[form=chosen]:checked").length;
    form.hidden = count === 0;
    form.querySelector("output").textContent = form.dataset.count.replace("#", count);
  };
  document.addEventListener("change", show);
  // Boxes are empty after the event.
  document.addEventListener("reset", () => setTimeout(show));
  // An answer that streamed in brings its form.
  new MutationObserver(show).observe(document.getElementById("answer") ?? document.body, { childList: true });
  show();
}
