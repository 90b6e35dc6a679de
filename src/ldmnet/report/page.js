// Draws the report's plots from the JSON in #data. Text goes into the page as text, never as markup.
(() => {
  "use strict";

  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const fine = matchMedia("(pointer: fine)");

  const LINES = 10; // colours of style.css, one a row of a table
  const CLASSES = 10;
  const RANGE = 1000; // of features.py
  const DASHES = ["dot", "dash", "dashdot", "longdash", "solid", "longdashdot", "8px,3px,2px,3px", "2px,4px",
    "12px,3px", "4px,2px"];
  const SWATCH = ["2 3", "6 3", "6 3 2 3", "9 3", "", "9 3 2 3", "7 3 2 3", "2 4", "12 3", "4 2"]; // the same, in a legend
  const MARKS = ["circle", "square", "diamond", "triangle-up", "triangle-down"];
  const SHAPES = ["M6 1.5a4.5 4.5 0 1 0 .01 0z", "M2 2h8v8h-8z", "M6 .5l5.5 5.5l-5.5 5.5l-5.5-5.5z",
    "M6 1l5.5 9.5h-11z", "M6 11l5.5-9.5h-11z"];

  // ---- the page's parts

  function element(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in made) made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  function drawing(tag, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  // plotly reads some tags in its texts: what a user named stays text
  function plain(text) {
    return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }

  function number(value) {
    return value.toFixed(2).replace("-", "−");
  }

  // ---- drawing when it comes into view, and again when the colours change

  const plots = [];
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(plots.find((plot) => plot.place === entry.target));
  }, { rootMargin: "600px" });

  function draw(plot) {
    watcher.unobserve(plot.place);
    plot.drawn = true;
    const { traces, layout } = plot.describe();
    Plotly.react(plot.place, traces, layout, { displayModeBar: false, responsive: true, typesetMath: false })
      .then(() => plot.ready && plot.ready());
  }

  function addPlot(place, describe, ready) {
    const plot = { place, describe, ready, drawn: false };
    plots.push(plot);
    watcher.observe(place);
    return plot;
  }

  function redraw() {
    for (const plot of plots) if (plot.drawn) draw(plot);
  }

  dark.addEventListener("change", redraw);
  addEventListener("beforeprint", () => plots.forEach(draw));

  function place(figure) {
    const id = figure.closest("figure").id;
    const made = element("div", { className: "plot" });
    made.setAttribute("role", "img");
    made.setAttribute("aria-labelledby", `${id}-title`);
    made.setAttribute("aria-describedby", `${id}-summary`);
    return made;
  }

  function frame(more) {
    const axis = {
      gridcolor: color("rule"), zeroline: false, showline: true, linecolor: color("muted"), automargin: true,
      fixedrange: !fine.matches, title: { standoff: 8 },
    };
    return {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 13, color: color("text") },
      margin: { l: 8, r: 12, t: 10, b: 8 },
      showlegend: false,
      dragmode: fine.matches ? "zoom" : false,
      hoverlabel: { bgcolor: color("surface"), bordercolor: color("muted"), font: { color: color("text") }, namelength: -1 },
      ...more,
      xaxis: { ...axis, ...more.xaxis },
      yaxis: { ...axis, ...more.yaxis },
    };
  }

  function logarithmic(values) {
    const there = values.filter((v) => v !== null && v > 0);
    const low = Math.log10(Math.min(...there)), high = Math.log10(Math.max(...there));
    const edge = 0.05 * (high - low) + 0.02;
    return { type: "log", exponentformat: "power", range: [low - edge, high + edge], ...(high - low > 1.5 ? { dtick: Math.ceil((high - low) / 6) } : {}) };
  }

  function lineStyle(index) {
    return { color: color(`line-${index % LINES}`), dash: DASHES[index % LINES], width: index === 4 ? 3 : 2 };
  }

  function lineSwatch(index) {
    const line = drawing("line", { x1: 1, x2: 29, y1: 6, y2: 6, "stroke-width": 3, "stroke-dasharray": SWATCH[index % LINES] });
    line.style.stroke = `var(--line-${index % LINES})`;
    return drawing("svg", { width: 30, height: 12, "aria-hidden": "true" }, line);
  }

  function classSwatch(index) {
    const path = drawing("path", { d: SHAPES[markOf(index)] });
    path.style.fill = `var(--class-${index % CLASSES})`;
    return drawing("svg", { width: 12, height: 12, "aria-hidden": "true" }, path);
  }

  function markOf(index) {
    return (index + Math.floor(index / CLASSES)) % MARKS.length;
  }

  // checkboxes, so that a keyboard and a screen reader can use them
  function legend(title, items, changed) {
    const made = element("fieldset", { className: "legend" }, element("legend", { className: "hidden" }, title));
    items.forEach((item, index) => {
      const box = element("input", { type: "checkbox", checked: true });
      box.addEventListener("change", () => changed(index, box.checked));
      made.append(element("label", {}, box, item.swatch, item.label));
    });
    return made;
  }

  // ---- lines over epochs

  function drawLines(figure, spec) {
    const here = place(figure), off = new Set();
    const shown = legend("Lines shown", spec.lines.map((line) => ({ swatch: lineSwatch(line.color), label: line.label })),
      (index, on) => { off[on ? "delete" : "add"](index); draw(plot); });
    const plot = addPlot(here, () => {
      const traces = [];
      spec.lines.forEach((line, index) => {
        if (off.has(index)) return;
        const style = lineStyle(line.color), name = plain(line.label);
        if (line.low) {
          const band = { x: line.x, mode: "lines", hoverinfo: "skip", line: { width: 0 } };
          traces.push({ ...band, y: line.low }, { ...band, y: line.high, fill: "tonexty", fillcolor: style.color + "2e" });
        }
        traces.push({
          x: line.x, y: line.y, name, line: style, mode: spec.markers ? "lines+markers" : "lines",
          marker: { symbol: MARKS[line.color % MARKS.length], size: 7, color: style.color },
          hovertemplate: "%{y:.4~g}",
        });
      });
      const all = spec.lines.flatMap((line) => [...line.y, ...(line.low || []), ...(line.high || [])]);
      const yaxis = { title: { text: plain(spec.y), standoff: 8 }, ...(spec.log ? logarithmic(all) : spec.range ? { range: spec.range } : {}) };
      return { traces, layout: frame({ xaxis: { title: { text: "epoch", standoff: 8 } }, yaxis, hovermode: "x unified" }) };
    });
    figure.append(shown, here);
  }

  // ---- a slider over epochs, shared by the features and the spectrum of the same runs

  const steps = {};

  function stepOf(name, epochs) {
    const key = name.replace(/^[a-z]+-/, "");
    if (!steps[key]) steps[key] = { value: epochs.length - 1, listeners: [] };
    return steps[key];
  }

  function epochSlider(name, epochs, step, describe) {
    const slider = element("input", { type: "range", id: `${name}-epoch`, min: 0, max: epochs.length - 1, step: 1 });
    const shown = element("output", {});
    shown.htmlFor = slider.id;
    const show = () => {
      slider.value = step.value;
      shown.textContent = `${epochs[step.value]} of ${epochs[epochs.length - 1]}`;
      slider.setAttribute("aria-valuetext", `epoch ${epochs[step.value]}${describe ? `, ${describe()}` : ""}`);
    };
    const move = (value) => {
      step.value = value;
      for (const listener of step.listeners) listener();
    };
    slider.addEventListener("input", () => move(Number(slider.value)));
    step.listeners.push(show);
    show();
    let playing = null;
    const play = element("button", { type: "button" }, "Play");
    const stop = () => { clearInterval(playing); playing = null; play.textContent = "Play"; };
    play.addEventListener("click", () => {
      if (playing !== null) { stop(); return; }
      if (step.value === epochs.length - 1) move(0);
      play.textContent = "Stop";
      playing = setInterval(() => {
        if (step.value < epochs.length - 1) move(step.value + 1);
        if (step.value === epochs.length - 1) stop();
      }, 900);
    });
    slider.addEventListener("input", () => { if (playing !== null) stop(); });
    return element("div", { className: "control epochs" }, element("label", { htmlFor: slider.id }, "Epoch"), slider, shown, play);
  }

  // ---- features

  function drawFeatures(figure, spec) {
    const name = figure.closest("figure").id;
    const n = spec.labels.length, step = stepOf(name, spec.epochs);
    const state = { sample: 0, together: false, off: new Set() };
    if (spec.sprite) figure.style.setProperty("--sprite", `url(${data.sprites[spec.sprite.id]})`);

    const right = (panel) => {
      const predicted = panel.predicted[step.value];
      return 100 * spec.labels.filter((label, i) => label === predicted[i]).length / n;
    };
    const taken = (panel, i) => {
      const c = panel.predicted[step.value][i];
      return c in spec.classes ? spec.classes[c] : String(c);
    };
    const at = (panel) => {
      const t = step.value, size = panel.scale[t] / Math.max(...panel.scale) / RANGE;
      const [left, low, half] = state.together ? [0, 0, 1 / size] : panel.frame[t];
      const keep = (values, middle) => values.map((v, i) => (state.off.has(spec.labels[i]) ? null : (v - middle) / half));
      return { x: keep(panel.x[t], left), y: keep(panel.y[t], low) };
    };
    const ring = (panel) => {
      const { x, y } = at(panel);
      return { x: [x[state.sample]], y: [y[state.sample]] };
    };
    const outline = (panel) => {
      const wrong = panel.predicted[step.value].map((c, i) => c !== spec.labels[i]);
      const ink = color("text"), paper = color("surface");
      return { width: wrong.map((w) => (w ? 1.8 : 0.6)), color: wrong.map((w) => (w ? ink : paper)) };
    };

    // controls
    const epochs = epochSlider(name, spec.epochs, step, () => spec.panels.map((p) => `${p.label} ${right(p).toFixed(1)} % right`).join(", "));
    const slider = element("input", { type: "range", id: `${name}-sample`, min: 1, max: n, step: 1, value: 1 });
    const which = element("output", {});
    which.htmlFor = slider.id;
    const samples = element("div", { className: "control" }, element("label", { htmlFor: slider.id }, "Sample"), slider, which);
    const together = element("input", { type: "checkbox" });
    const scale = element("div", { className: "control" }, element("label", {}, together, "Same scale at every epoch"));
    const classes = legend("Classes shown", spec.classes.map((label, i) => ({ swatch: classSwatch(i), label })), (c, on) => {
      state.off[on ? "delete" : "add"](c);
      restyle();
    });

    // the sample that is pointed at
    const picture = spec.sprite ? element("div", { className: "picture", role: "img" }) : null;
    const words = element("p", {}), seen = element("p", {});
    const sample = element("div", { className: "sample" }, ...(picture ? [picture] : []), element("div", {}, words, seen));
    sample.setAttribute("aria-live", "polite");
    const tip = element("div", { className: "tip", hidden: true });
    tip.setAttribute("aria-hidden", "true");

    function cut(box, i, side) {
      const { columns, rows, width, height } = spec.sprite;
      const zoom = side / Math.max(width, height);
      box.style.width = `${width * zoom + 2}px`;
      box.style.height = `${height * zoom + 2}px`;
      box.style.backgroundSize = `${columns * width * zoom}px ${rows * height * zoom}px`;
      box.style.backgroundPosition = `${-(i % columns) * width * zoom}px ${-Math.floor(i / columns) * height * zoom}px`;
    }
    function where(panel, i) {
      const x = panel.x[step.value][i] * panel.scale[step.value] / RANGE, y = panel.y[step.value][i] * panel.scale[step.value] / RANGE;
      return `(${number(x)}, ${number(y)})`;
    }
    function describe() {
      const i = state.sample;
      slider.value = i + 1;
      which.textContent = `${i + 1} of ${n}`;
      slider.setAttribute("aria-valuetext", `${i + 1}: ${spec.names[i]}, class ${spec.classes[spec.labels[i]]}`);
      words.textContent = `${spec.part} sample ${spec.names[i]}, class ${spec.classes[spec.labels[i]]}`;
      const list = spec.panels.map((panel) => `${panel.label}: ${taken(panel, i)}${spec.sprite ? "" : ` at ${where(panel, i)}`}`);
      seen.textContent = `At epoch ${spec.epochs[step.value]} taken for: ${list.join("; ")}`;
      if (picture) {
        cut(picture, i, 84);
        picture.setAttribute("aria-label", `picture of ${words.textContent}`);
      }
    }
    function point(panel, i, event) {
      const lines = [`class ${spec.classes[spec.labels[i]]}`, `taken for ${taken(panel, i)}`, `sample ${spec.names[i]}`, where(panel, i)];
      const text = element("div", {});
      lines.forEach((line) => text.append(element("div", {}, line)));
      tip.replaceChildren(text);
      if (spec.sprite) {
        const box = element("div", { className: "picture" });
        cut(box, i, 72);
        tip.prepend(box);
      }
      tip.hidden = false;
      const size = tip.getBoundingClientRect(), gap = 14;
      const left = event.clientX + gap + size.width < innerWidth ? event.clientX + gap : event.clientX - gap - size.width;
      tip.style.left = `${Math.max(4, left)}px`;
      tip.style.top = `${Math.max(4, Math.min(event.clientY + gap, innerHeight - size.height - 4))}px`;
    }
    const hide = () => { tip.hidden = true; };
    addEventListener("scroll", hide, { passive: true });

    // panels
    const grid = element("div", { className: "panels" });
    const panels = spec.panels.map((panel, k) => {
      const here = place(figure);
      const score = element("p", {});
      const title = element("h5", { id: `${name}-panel-${k}` }, panel.label);
      here.setAttribute("aria-labelledby", `${name}-title ${title.id}`);
      grid.append(element("div", { className: "panel" }, title, score, here));
      const describePlot = () => ({
        traces: [
          {
            ...at(panel), mode: "markers", type: "scatter", hoverinfo: "none",
            marker: {
              size: here.clientWidth < 220 ? 6 : 8, color: spec.labels.map((c) => color(`class-${c % CLASSES}`)),
              symbol: spec.labels.map((c) => MARKS[markOf(c)]), opacity: 1, line: outline(panel),
            },
          },
          {
            ...ring(panel), mode: "markers", type: "scatter", hoverinfo: "skip",
            marker: { symbol: "circle-open", size: here.clientWidth < 220 ? 15 : 20, color: color("link"), line: { width: 3, color: color("link") } },
          },
        ],
        layout: frame({
          margin: { l: 2, r: 2, t: 2, b: 2 }, hovermode: "closest", dragmode: false,
          xaxis: { range: [-1.06, 1.06], showticklabels: false, fixedrange: true, automargin: false, showgrid: false, showline: false },
          yaxis: { range: [-1.06, 1.06], showticklabels: false, fixedrange: true, automargin: false, showgrid: false, showline: false },
        }),
      });
      const plot = addPlot(here, describePlot, () => {
        if (plot.listening) return;
        plot.listening = true;
        const pointed = (event) => {
          const hit = event.points.find((found) => found.curveNumber === 0);
          if (!hit) return;
          choose(hit.pointNumber);
          point(panel, hit.pointNumber, event.event);
        };
        here.on("plotly_hover", pointed);
        here.on("plotly_click", pointed);
        here.on("plotly_unhover", hide);
      });
      return { panel, plot, score };
    });

    function choose(i) {
      if (i === state.sample) return;
      state.sample = i;
      describe();
      for (const { panel, plot } of panels) {
        const { x, y } = ring(panel);
        if (plot.drawn) Plotly.restyle(plot.place, { x: [x], y: [y] }, [1]);
      }
    }
    function restyle() {
      for (const { plot } of panels) if (plot.drawn) draw(plot);
    }
    function move() {
      hide();
      describe();
      for (const { panel, plot, score } of panels) {
        score.textContent = `${right(panel).toFixed(1)} % right`;
        if (!plot.drawn) continue;
        if (still.matches) { draw(plot); continue; }
        Plotly.animate(plot.place, { data: [{ ...at(panel), marker: { line: outline(panel) } }, ring(panel)], traces: [0, 1] },
          { mode: "immediate", frame: { duration: 350, redraw: false }, transition: { duration: 350, easing: "cubic-in-out" } })
          .catch(() => {}); // a further move came first
      }
    }
    slider.addEventListener("input", () => { hide(); choose(Number(slider.value) - 1); });
    together.addEventListener("change", () => { state.together = together.checked; restyle(); });
    step.listeners.push(move);
    const choices = element("div", {}, scale, classes,
      element("p", { className: "note" }, "An outline marks a sample that is taken for another class; the ring, the chosen sample."));
    figure.append(epochs, element("div", { className: "controls" }, choices, element("div", {}, samples, sample)), grid, tip);
    describe();
    move();
  }

  // ---- spectrum

  function drawSpectrum(figure, spec) {
    const name = figure.closest("figure").id, step = stepOf(name, spec.epochs);
    const state = { kind: "within", off: new Set() };
    const here = place(figure);
    const kinds = element("fieldset", { className: "legend" }, element("legend", { className: "hidden" }, "Covariance"));
    for (const [kind, words] of [["within", "within classes"], ["all", "of all samples"]]) {
      const box = element("input", { type: "radio", name: `${name}-kind`, checked: kind === state.kind });
      box.addEventListener("change", () => { state.kind = kind; again(); });
      kinds.append(element("label", {}, box, words));
    }
    const shown = legend("Lines shown", spec.lines.map((line) => ({ swatch: lineSwatch(line.color), label: line.label })),
      (index, on) => { state.off[on ? "delete" : "add"](index); again(); });
    const plot = addPlot(here, () => {
      const traces = spec.lines.filter((_, index) => !state.off.has(index)).map((line) => {
        const y = line[state.kind][step.value];
        return { x: y.map((_, i) => i + 1), y, name: plain(line.label), mode: "lines", line: lineStyle(line.color), hovertemplate: "%{y:.3~g} %" };
      });
      const yaxis = { title: { text: "% of the sum", standoff: 8 }, ...logarithmic(spec.lines.flatMap((line) => line[state.kind].flat())) };
      return { traces, layout: frame({ xaxis: { title: { text: "eigenvalue", standoff: 8 } }, yaxis, hovermode: "x unified" }) };
    });
    function again() {
      if (plot.drawn) draw(plot);
    }
    step.listeners.push(again);
    figure.append(epochSlider(name, spec.epochs, step), kinds, shown, here);
  }

  // a table that fits needs no stop for the keyboard
  const fit = new ResizeObserver((entries) => {
    for (const { target } of entries) target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
  });
  for (const table of document.querySelectorAll(".scroll")) fit.observe(table);

  const draws = { lines: drawLines, features: drawFeatures, spectrum: drawSpectrum };
  for (const figure of document.querySelectorAll("[data-plot]")) {
    const spec = data.plots[figure.dataset.plot];
    draws[spec.kind](figure, spec);
  }
})();
