// Sorts tables by a click on a heading; without it every table is whole and in its best order.
for (const button of document.querySelectorAll("table.sortable th button")) {
  button.addEventListener("click", () => {
    const th = button.closest("th");
    const body = th.closest("table").tBodies[0];
    const down = th.getAttribute("aria-sort") !== "descending";
    for (const other of th.parentElement.children) other.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", down ? "descending" : "ascending");
    const number = (text) => parseFloat(text.replace(/−/g, "-").replace(/[,<%\s]/g, ""));
    const key = (row) => row.cells[th.cellIndex].textContent.trim();
    const order = (a, b) => {
      const [x, y] = [number(key(a)), number(key(b))];
      const numeric = th.classList.contains("n");
      if (numeric && isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;
      const difference = numeric && !isNaN(x) ? x - y : key(a).localeCompare(key(b));
      return down ? -difference : difference;
    };
    body.append(...[...body.rows].sort(order));
  });
}
