"use strict";
(() => {
  const STEP = 200; // rows that are added at a time
  const data = JSON.parse(document.getElementById("data").textContent);
  const names = Object.keys(data.columns);
  const get = (name, row) => {
    const column = data.columns[name];
    const value = column.values[row];
    return column.texts ? column.texts[value] : value;
  };
  const body = document.getElementById("rows");
  const more = document.getElementById("more");
  const search = document.getElementById("search");
  const selects = [...document.querySelectorAll("select[data-column]")];
  const searched = Array.from({ length: data.count }, (_, row) =>
    `${get("id", row)} ${get("cause", row)} ${data.messages[row] || ""}`.toLowerCase());
  let order = Array.from({ length: data.count }, (_, row) => row);
  let found = order;
  let shown = 0;
  let sorted = { name: "", down: false };

  const number = (value) => value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1)
    : value.toLocaleString("en", { maximumSignificantDigits: value < 1000 ? 3 : 21,
      maximumFractionDigits: 0, roundingPriority: "morePrecision" });

  const unfolding = (title, text) => { // a cause that shows its whole message
    const made = document.createElement("details");
    const [summary, message] = [document.createElement("summary"), document.createElement("pre")];
    summary.textContent = title;
    message.textContent = text;
    made.append(summary, message);
    return made;
  };

  const cell = (name, row) => {
    const value = get(name, row);
    const made = document.createElement("td");
    made.className = name;
    if (value === null) return made;
    if (typeof value === "number") {
      made.className = "value";
      made.textContent = number(name === "file_bytes" ? value / 1e6 : value);
    } else if (name === "verdict") {
      made.className = value === "pass" ? "good" : "bad";
      made.textContent = value;
    } else if (name === "cause" && data.messages[row]) {
      made.append(unfolding(value, data.messages[row]));
    } else {
      made.textContent = value;
    }
    return made;
  };

  const extend = () => {
    const fragment = document.createDocumentFragment();
    for (const row of found.slice(shown, shown + STEP)) {
      const line = document.createElement("tr");
      line.append(...names.map((name) => cell(name, row)));
      fragment.append(line);
    }
    shown = Math.min(found.length, shown + STEP);
    body.append(fragment);
    more.hidden = shown >= found.length;
  };

  const update = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = selects.filter((s) => s.value).map((s) => [s.dataset.column, s.value]);
    found = order.filter((row) =>
      words.every((word) => searched[row].includes(word)) &&
      wanted.every(([name, value]) => String(get(name, row)) === value));
    document.getElementById("count").textContent =
      `${found.length.toLocaleString("en")} of ${data.count.toLocaleString("en")} tasks`;
    body.replaceChildren();
    shown = 0;
    extend();
  };

  const compare = (name) => (a, b) => {
    const [x, y] = [get(name, a), get(name, b)];
    if (x === y) return a - b;
    if (x === null || x === "") return 1; // without a value: last
    if (y === null || y === "") return -1;
    const less = typeof x === "number" ? x - y : x < y ? -1 : 1;
    return sorted.down ? -less : less;
  };

  for (const button of document.querySelectorAll("[data-sort]")) {
    button.addEventListener("click", () => {
      const name = button.dataset.sort;
      sorted = { name, down: sorted.name === name && !sorted.down };
      order = [...order].sort(compare(name));
      update();
    });
  }
  search.addEventListener("input", update);
  selects.forEach((select) => select.addEventListener("change", update));
  more.addEventListener("click", extend);
  update();
})();
