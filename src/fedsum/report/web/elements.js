// Makes elements. Text from the data reaches the page as text nodes only, never as markup.

const byId = (id) => document.getElementById(id);

function setAttributes(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(key, value);
}

// Attributes and children that are null are left out.
function completed(element, attributes, children) {
  setAttributes(element, attributes);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const el = (tag, attributes = {}, ...children) => completed(document.createElement(tag), attributes, children);

const svg = (tag, attributes = {}, ...children) =>
  completed(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
