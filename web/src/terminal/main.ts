import "../styles/tokens.css";
import "../styles/base.css";
import "@xterm/xterm/css/xterm.css";
import { mount } from "svelte";
import { followTheme } from "../shell/theme.svelte";
import Terminal from "./Terminal.svelte";

followTheme();
const target = document.getElementById("app");
if (target) mount(Terminal, { target });
