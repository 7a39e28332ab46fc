// Browsers refuse workers on pages that were opened from files, and the search of this site is a worker. There its
// script runs in a hidden frame. (The plugin `offline` looks for this file by the name iframe-worker.)
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const loaded = this.inside.document.createElement("script");
      this.ready = new Promise((done) => loaded.addEventListener("load", done));
      loaded.src = new URL(script, location.href);
      this.inside.document.head.append(loaded);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }
  };
