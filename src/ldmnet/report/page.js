// Hands the figures in #data to plotly: when they come into view, in the page's colours, and again on paper.
(() => {
  "use strict";

  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement, style = getComputedStyle(root);
  const places = [...document.querySelectorAll("[data-figure]")];
  const fine = matchMedia("(pointer: fine)"), still = matchMedia("(prefers-reduced-motion: reduce)");
  const PAPER = 640; // pixels, which fit between the margins of A4

  // colours stand in the figures by name
  const named = (name) => style.getPropertyValue(`--${name}`).trim();
  const ink = (value) => Array.isArray(value) ? value.map(ink) : typeof value === "string" ? named(value) || value : value;
  const inked = (figure) => JSON.parse(JSON.stringify(figure), (key, value) =>
    key === "fillcolor" ? `${ink(value)}2e` : /color(scale)?$/.test(key) ? ink(value) : value);

  function draw(place) {
    if (!place.clientWidth) return; // folded
    watcher.unobserve(place);
    const figure = inked({ ...data.figures[place.dataset.figure], frames: [] }), paper = root.classList.contains("paper");
    figure.layout.template = inked(data.template);
    if (!fine.matches) figure.layout.dragmode = false; // a finger scrolls
    const side = place.closest(".square, .features") && PAPER / 3 - 8;
    Object.assign(figure.layout, paper ? { width: side || PAPER, height: side || 290, autosize: false } : { autosize: true });
    if (place.now) { // the epoch and the sample that were chosen
      const { marker, ...rest } = place.now;
      Object.assign(figure.data[0], rest, { selectedpoints: [place.chosen] });
      Object.assign(figure.data[0].marker.line, marker.line);
    }
    place.dataset.drawn = "yes";
    Plotly.react(place, figure.data, figure.layout, { displayModeBar: false, responsive: true, typesetMath: false });
    if (place.choose && !place.listening) {
      place.listening = true;
      for (const event of ["plotly_hover", "plotly_click"]) place.on(event, ({ points }) => place.choose(points[0].pointNumber));
    }
  }

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, { rootMargin: "600px" });
  places.forEach((place) => watcher.observe(place));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => places.filter((p) => p.dataset.drawn).forEach(draw));
  addEventListener("beforeprint", () => { root.classList.add("paper"); places.forEach(draw); });
  addEventListener("afterprint", () => { root.classList.remove("paper"); places.forEach(draw); });

  // the features: one epoch and one sample for all panels of a figure
  for (const figure of document.querySelectorAll("figure.features")) {
    const [epoch, sample] = ["input.epoch", "input.sample"].map((name) => figure.querySelector(name));
    const [at, words] = ["output.epoch", "output.sample"].map((name) => figure.querySelector(name));
    const panels = [...figure.querySelectorAll(".plot")], picture = figure.querySelector(".picture");
    const play = figure.querySelector("button"), epochs = epoch.dataset.epochs.split(" "), about = data.samples[figure.id];
    let timer = null;

    function move() {
      at.textContent = epoch.ariaValueText = `${epochs[epoch.value]} of ${epochs[epochs.length - 1]}`;
      for (const place of panels) {
        place.now = data.figures[place.dataset.figure].frames[epoch.value];
        if (!place.dataset.drawn) continue;
        const duration = still.matches ? 0 : 350;
        Plotly.animate(place, { data: [place.now], traces: [0] },
          { mode: "immediate", frame: { duration, redraw: false }, transition: { duration } }).catch(() => {}); // the next came first
      }
    }
    function choose(i) {
      sample.value = i;
      words.textContent = sample.ariaValueText = about.words[i];
      for (const place of panels) {
        place.chosen = i;
        if (place.dataset.drawn) Plotly.restyle(place, { selectedpoints: [[i]] });
      }
      if (!picture) return;
      const { id, columns, rows, width, height } = about.sprite, zoom = 64 / Math.max(width, height);
      Object.assign(picture.style, {
        width: `${width * zoom}px`, height: `${height * zoom}px`, backgroundImage: `url(${data.sprites[id]})`,
        backgroundSize: `${columns * width * zoom}px ${rows * height * zoom}px`,
        backgroundPosition: `${-(i % columns) * width * zoom}px ${-Math.floor(i / columns) * height * zoom}px`,
      });
    }
    function stop() { clearInterval(timer); timer = null; play.textContent = "Play"; }

    epoch.addEventListener("input", () => { stop(); move(); });
    sample.addEventListener("input", () => choose(Number(sample.value)));
    play.addEventListener("click", () => {
      if (timer !== null) { stop(); return; }
      if (Number(epoch.value) === epochs.length - 1) { epoch.value = 0; move(); }
      play.textContent = "Stop";
      timer = setInterval(() => {
        epoch.value = Number(epoch.value) + 1;
        move();
        if (Number(epoch.value) === epochs.length - 1) stop();
      }, 900);
    });
    for (const place of panels) place.choose = choose;
    move();
    choose(0);
  }
})();
