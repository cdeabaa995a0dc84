// Before the page is drawn: the theme that was chosen, so that it does not flash.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("penstock-theme"); } catch { /* storage is off: the system's theme counts */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
