"use strict";
// shared by every exported page: its data, and two short names
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const make = (tag, text, classes) => {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  if (classes) element.className = classes;
  return element;
};
