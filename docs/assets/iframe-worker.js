// Browsers start no worker for pages that are read from the disk, and the search of the manual is one. This runs it in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = (this.inner = frame.contentWindow);
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inner.importScripts = (...addresses) => Promise.all(addresses.map((one) => this.load(one)));
      this.loaded = this.load(new URL(address, location));
    }

    load(address) {
      return new Promise((done, failed) => {
        const script = Object.assign(this.inner.document.createElement("script"), { src: address, onload: done, onerror: failed });
        this.inner.document.body.append(script);
      });
    }

    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })));
    }

    terminate() {
      this.inner.frameElement.remove();
    }
  };
}
