import "./styles/tokens.css";
import "./styles/base.css";
import { mount } from "svelte";
import App from "./App.svelte";
import { followTheme } from "./shell/theme.svelte";

followTheme();
const target = document.getElementById("app");
if (target) mount(App, { target });
