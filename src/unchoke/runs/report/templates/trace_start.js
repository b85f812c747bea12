// Tabs, then the views. The address names the view (#operators), so that a link can open one.

function startTabs() {
  const tabs = [...document.querySelectorAll('[role="tab"]')];
  const address = (tab) => tab.id.replace("tab-", "#");
  const choose = (chosen, focus = false) => {
    for (const tab of tabs) {
      const here = tab === chosen;
      tab.setAttribute("aria-selected", here);
      tab.tabIndex = here ? 0 : -1;
      byId(tab.getAttribute("aria-controls")).hidden = !here;
    }
    if (focus) chosen.focus();
    history.replaceState(null, "", address(chosen));
  };
  const named = () => tabs.find((tab) => address(tab) === location.hash) ?? tabs[0];
  tabs.forEach((tab, place) => {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      choose(tabs[(to + tabs.length) % tabs.length], true);
      event.preventDefault();
    });
  });
  addEventListener("hashchange", () => choose(named()));
  choose(named());
}

startTabs();
startOperators();
startKernels();
startStrip();
startMemory();
startDiff();
document.documentElement.dataset.ready = "yes";
