/* Browsers start no Worker from a file: the search of the site then runs in a hidden frame with the same face. */
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      this.waiting = [];
      const inner = this.frame.contentWindow;
      const outer = this;
      inner.postMessage = (data) => outer.dispatchEvent(new MessageEvent("message", { data }));
      inner.importScripts = (...scripts) =>
        scripts.reduce((before, script) => before.then(() => this.load(new URL(script, url))), Promise.resolve());
      this.ready = this.load(url);
    }
    load(url) {
      return new Promise((done, failed) => {
        const script = this.frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = done;
        script.onerror = failed;
        this.frame.contentDocument.body.appendChild(script);
      });
    }
    postMessage(data) {
      this.ready = this.ready.then(() => {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      });
    }
    set onmessage(handler) {
      this.addEventListener("message", handler);
    }
    terminate() {
      this.frame.remove();
    }
  };
}
