for (const button of document.querySelectorAll(".table button")) {
    button.addEventListener("click", () => {
        const rows = [...button.parentElement.querySelectorAll("tr")];
        const text = rows.map((row) => [...row.cells].map((cell) => cell.textContent).join("\t")).join("\n");
        const area = document.createElement("textarea");
        area.value = text;
        document.body.append(area);
        area.select();
        button.textContent = document.execCommand("copy") ? "Copied" : "Not permitted";
        area.remove();
    });
}
