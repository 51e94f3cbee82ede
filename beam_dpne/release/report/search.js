
"use strict";
// The search box of a report: a filter over the rows in this page. Texts become text nodes, never markup.
(function () {
  const page = 100;
  const groups = JSON.parse(document.getElementById("search-rows").textContent);
  const lowered = groups.map(([, texts]) => texts.map((text) => text.toLowerCase()));
  const field = document.getElementById("search-text");
  const chooser = document.getElementById("search-length");
  const state = document.getElementById("search-state");
  const found = document.getElementById("search-found");
  const more = document.getElementById("search-more");
  const body = found.querySelector("tbody");
  let hits = [];
  let shown = 0;

  function cell(row, text, kind) {
    const made = row.insertCell();
    made.className = kind === "number" ? "number" : "";
    if (kind !== "text") {
      made.textContent = text;
      return;
    }
    const isolated = document.createElement("bdi");
    isolated.className = "released";
    isolated.textContent = text;
    made.append(isolated);
  }

  function showMore() {
    for (const [group, place] of hits.slice(shown, shown + page)) {
      const row = body.insertRow();
      if (chooser) cell(row, groups[group][0], "number");
      cell(row, groups[group][1][place], "text");
      cell(row, groups[group][2][place], "number");
    }
    shown = Math.min(hits.length, shown + page);
    more.hidden = shown >= hits.length;
    const count = hits.length.toLocaleString("en");
    const part = shown < hits.length ? `, of which ${shown.toLocaleString("en")} are shown` : "";
    state.textContent = hits.length === 1 ? "1 row found." : `${count} rows found${part}.`;
  }

  function search() {
    const wanted = field.value.toLowerCase().trim();
    const only = chooser ? chooser.value : "";
    body.replaceChildren();
    hits = [];
    shown = 0;
    found.hidden = true;
    more.hidden = true;
    state.textContent = "";
    if (!wanted && !only) return;
    lowered.forEach((texts, group) => {
      if (only !== "" && Number(only) !== group) return;
      texts.forEach((text, place) => {
        if (text.includes(wanted)) hits.push([group, place]);
      });
    });
    found.hidden = hits.length === 0;
    showMore();
  }

  document.querySelector(".search").hidden = false;
  field.addEventListener("input", search);
  if (chooser) chooser.addEventListener("change", search);
  more.addEventListener("click", showMore);
  search();
})();
