/* A page that is opened from the disk may not start a worker: the search then runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inside = this.frame.contentWindow;
      // later, as a worker would: whoever asks is not listening yet
      this.inside.postMessage = (data) =>
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      const script = this.inside.document.createElement("script");
      script.src = url;
      this.ready = new Promise((resolve) => { script.onload = resolve; });
      this.inside.document.body.append(script);
    }

    postMessage(data) {
      this.ready.then(() =>
        setTimeout(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }))));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
