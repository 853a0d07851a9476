// Labels chosen in the page: kept in the browser, written into a CSV file when asked.
"use strict";
const rows = Array.from(document.querySelectorAll("tr[data-cells]"));
const columns = JSON.parse(document.querySelector("table[data-columns]").dataset.columns);
const place = columns.indexOf("label");
const shelf = "blr answers: " + document.querySelector("table[data-list]").dataset.list;
const state = document.getElementById("answered");
let current = 0;

function choice(row) { return row.querySelector("select"); }

function kept() {
  try { return JSON.parse(localStorage.getItem(shelf)) || {}; } catch (error) { return {}; }
}

// Answers belong to this list and to an identifier, whatever the order of the rows; an object may have several rows.
const seen = new Map();
const keys = rows.map((row) => {
  const name = JSON.parse(row.dataset.cells)[0];
  seen.set(name, (seen.get(name) || 0) + 1);
  return name + "\n" + seen.get(name);
});

function given() {
  const answers = {};
  rows.forEach((row, i) => { if (choice(row).value) { answers[keys[i]] = choice(row).value; } });
  return answers;
}

function count(remark) {
  state.textContent = Object.keys(given()).length + " of " + rows.length + " answered" + remark;
}

function keep() {
  let remark = "";
  try { localStorage.setItem(shelf, JSON.stringify(given())); } catch (error) {
    remark = "; this browser does not keep them: download them before you leave the page";
  }
  count(remark);
}

// No spreadsheet takes a text that begins with an apostrophe for a formula; who reads the answers takes it away again.
function harmless(text) { return /^[=+\-@\t\r']/.test(text) ? "'" + text : text; }
function plain(text) { return /^'[=+\-@\t\r']/.test(text) ? text.slice(1) : text; }
function quoted(text) { return /[",\r\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text; }

function table() {
  const lines = [columns.map(quoted).join(",")];
  for (const row of rows) {
    const cells = JSON.parse(row.dataset.cells);
    cells[place] = harmless(choice(row).value);
    lines.push(cells.map(quoted).join(","));
  }
  return lines.join("\n") + "\n";
}

function go(to) {
  current = Math.max(0, Math.min(rows.length - 1, to));
  choice(rows[current]).focus();
  rows[current].scrollIntoView({ block: "nearest" });
}

const answers = kept();
rows.forEach((row, i) => {
  choice(row).value = answers[keys[i]] || plain(JSON.parse(row.dataset.cells)[place]);
  choice(row).addEventListener("change", keep);
  choice(row).addEventListener("focus", () => { current = i; });
});
document.addEventListener("keydown", (event) => {
  if (!rows.length || event.ctrlKey || event.metaKey || event.altKey) { return; }
  const chosen = Array.from(choice(rows[current]).options).findIndex((option) => option.dataset.key === event.key);
  if (chosen > 0) {
    choice(rows[current]).selectedIndex = chosen;
    keep();
    go(current + 1);
  } else if (event.key === "n") { go(current + 1); } else if (event.key === "p") { go(current - 1); } else { return; }
  event.preventDefault();
});
document.getElementById("download").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([table()], { type: "text/csv" }));
  link.download = document.querySelector("table[data-columns]").dataset.file;
  link.click();
  URL.revokeObjectURL(link.href);
});
// Nothing is written before a person answers: a page that could not read the answers would otherwise erase them.
count("");
