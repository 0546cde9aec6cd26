// The parts of Preact's interface that the console uses, for `tsc`. Its own declarations need JSX and are forty times as long.
export type VNode = { readonly type: unknown; readonly props: any };
export type Child = VNode | string | number | boolean | null | undefined | Child[];
export type Ref<T> = { current: T };
export function h(type: any, props: any, ...children: any[]): VNode;
export function render(node: Child, parent: Element): void;
export function createContext<T>(initial: T): { Provider: any; readonly value?: T };
export class Component {}
