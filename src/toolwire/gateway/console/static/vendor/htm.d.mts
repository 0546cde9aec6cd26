// htm binds a template tag to a function that creates nodes.
export function htm(this: (type: any, props: any, ...children: any[]) => any, strings: TemplateStringsArray, ...values: any[]): any;
