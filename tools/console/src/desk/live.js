// Keeps an open page current, and lets a journey be seen step by step. Without it pages are whole, and reload themselves.
"use strict";

const main = document.querySelector("main");

// What somebody is using, or has typed, is not replaced under their hands.
const isTyped = () => [...main.querySelectorAll("form input")].some((input) => input.value !== input.defaultValue);
const isUsed = () => main.contains(document.activeElement) || !document.getSelection().isCollapsed || isTyped();

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

// The latest content that is not shown yet.
let latest = null;

function apply() {
    if (latest !== null && !isUsed()) {
        main.replaceChildren(...new DOMParser().parseFromString(latest, "text/html").body.childNodes);
        latest = null;
        travel();
    }
    main.classList.toggle("behind", latest !== null);
}

let source = null;

function connect() {
    source?.close();
    // A browser has few connections for all of its pages, so only those that are seen have one.
    if (document.hidden) return;
    source = new EventSource(location.href);
    source.addEventListener("main", (event) => {
        latest = event.data;
        main.classList.remove("stale");
        apply();
    });
    source.addEventListener("stale", () => main.classList.add("stale"));
    source.addEventListener("error", () => {
        main.classList.add("stale");
        // A browser that was refused gives up; one that was cut off connects again itself.
        if (source.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
    });
}

travel();
if ("live" in main.dataset) {
    document.addEventListener("focusout", () => setTimeout(apply));
    document.addEventListener("selectionchange", apply);
    document.addEventListener("visibilitychange", connect);
    connect();
}
