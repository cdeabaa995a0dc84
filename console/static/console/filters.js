// The message browser: filters that are kept in this browser, and how many messages are chosen.
"use strict";
(() => {
  const SAVED_MAX = 30;
  const read = (key) => { try { return JSON.parse(localStorage.getItem(key)) || []; } catch { return []; } };
  const write = (key, saved) => { try { localStorage.setItem(key, JSON.stringify(saved)); } catch { /* storage is off */ } };
  const here = () => new URLSearchParams([...new URLSearchParams(location.search)].filter(([, value]) => value)).toString();

  function draw(box) {
    const saved = read(box.dataset.savedFilters);
    const list = box.querySelector("select");
    list.replaceChildren(new Option("Saved filters", ""), ...saved.map((one) => new Option(one.name, one.query)));
    list.value = saved.some((one) => one.query === here()) ? here() : "";
    list.hidden = !saved.length;
    box.querySelector("[data-filter-forget]").hidden = !list.value;
    box.querySelector("[data-filter-save]").hidden = !here() || Boolean(list.value);
  }

  function save(box) {
    const query = here();
    const name = prompt("Name of this filter", new URLSearchParams(query).get("text") || "");
    if (!name?.trim()) return;
    const others = read(box.dataset.savedFilters).filter((one) => one.name !== name.trim() && one.query !== query);
    write(box.dataset.savedFilters, [...others, { name: name.trim().slice(0, 60), query }].slice(-SAVED_MAX));
    draw(box);
  }

  function count() {
    const bar = document.querySelector("[data-chosen-bar]");
    if (!bar) return;
    const chosen = document.querySelectorAll("input[name=chosen]:checked").length;
    bar.hidden = !chosen;
    bar.querySelector("[data-chosen-count]").textContent = `${chosen} chosen`;
  }

  document.addEventListener("htmx:load", () => {
    document.querySelectorAll("[data-saved-filters]").forEach(draw);
    count();
  });
  document.addEventListener("change", (event) => {
    const box = event.target.closest("[data-saved-filters]");
    if (box && event.target.matches("select")) location.search = event.target.value;
    if (event.target.matches("[data-choose-all]")) document.querySelectorAll("input[name=chosen]").forEach((one) => { one.checked = event.target.checked; });
    if (event.target.matches("[data-choose-all], input[name=chosen]")) count();
  });
  document.addEventListener("click", (event) => {
    const box = event.target.closest("[data-saved-filters]");
    if (!box) return;
    if (event.target.matches("[data-filter-save]")) save(box);
    if (event.target.matches("[data-filter-forget]")) {
      write(box.dataset.savedFilters, read(box.dataset.savedFilters).filter((one) => one.query !== here()));
      draw(box);
    }
  });
})();
