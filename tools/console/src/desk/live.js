// Keeps an open page current, and lets a journey be seen step by step. Without it pages are whole, and reload themselves.
"use strict";

const main = document.querySelector("main");

// What somebody is using is not replaced under their hands.
const isUsed = () => main.contains(document.activeElement) || !document.getSelection().isCollapsed;

function travel() {
    const slider = main.querySelector(".travel input");
    if (!slider) return;
    const entries = main.querySelectorAll("ol.journey > li:not(.left)");
    const show = () => {
        const at = Number(slider.value);
        entries.forEach((entry, index) => entry.classList.toggle("later", index >= at));
        main.querySelectorAll("ol.journey > li.left").forEach((left) => left.classList.toggle("later", at < entries.length));
        slider.setAttribute("aria-valuetext", entries[at - 1].querySelector(".step").textContent);
        main.querySelector(".travel output").replaceChildren(entries[at - 1].querySelector(".states").cloneNode(true));
    };
    slider.addEventListener("input", show);
    main.querySelector(".travel").hidden = false;
    show();
}

travel();
if ("live" in main.dataset) {
    const source = new EventSource(location.href);
    source.addEventListener("main", (event) => {
        if (isUsed()) return;
        const now = new DOMParser().parseFromString(event.data, "text/html").body;
        main.replaceChildren(...now.childNodes);
        travel();
    });
    source.addEventListener("open", () => main.classList.remove("stale"));
    source.addEventListener("error", () => main.classList.add("stale"));
}
