// The reference of the REST API: its search while one types, and operations that a link leads to. It works without.
"use strict";
(() => {
  const field = document.querySelector("[data-filter-operations]");
  const found = document.querySelector("[data-found]");
  const operations = [...document.querySelectorAll("[data-operation]")];
  const texts = new Map(operations.map((one) => [one, one.textContent.toLowerCase()]));

  function show() {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const one of operations) {
      one.hidden = !words.every((word) => texts.get(one).includes(word));
      if (!one.hidden) count += 1;
    }
    for (const tag of document.querySelectorAll("[data-tag]")) tag.hidden = !tag.querySelector("[data-operation]:not([hidden])");
    for (const part of document.querySelectorAll("[data-words]")) part.hidden = words.length > 0;
    document.querySelector("[data-none]").hidden = count > 0;
    found.textContent = `${count} of ${operations.length} operations`;
  }

  function open() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (field?.value && target.closest("[hidden]")) { field.value = ""; show(); }
    const details = target.closest("details");
    if (details) details.open = true;
    document.querySelector("#menu").classList.remove("open");
    document.querySelector("[data-menu]").setAttribute("aria-expanded", "false");
    target.scrollIntoView();
  }

  if (field) {
    field.addEventListener("input", show);
    field.form.addEventListener("submit", (event) => event.preventDefault());
    if (field.value) show();
  }
  addEventListener("hashchange", open);
  open();
})();
