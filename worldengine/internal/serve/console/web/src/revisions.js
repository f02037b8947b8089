/** How many revisions are asked for at once. */
export const pageSize = 100;
/** How many are kept; older ones are asked for again. */
const mostRevisions = 500;

/** The revisions of a town, the newest first, without a hole between them. next is where older ones begin. */
export class Revisions {
  list = [];
  next = 0;

  /** Takes the newest revisions in. Where they do not reach those that are there, these are left. */
  newest(page) {
    const known = this.list[0]?.revision;
    const meets = known !== undefined && (!page.next || page.revisions.some((r) => r.revision === known));
    if (meets) {
      this.list = [...page.revisions.filter((r) => r.revision > known), ...this.list];
    } else {
      this.list = page.revisions;
      this.next = page.next ?? 0;
    }
    if (this.list.length > mostRevisions) {
      this.list = this.list.slice(0, mostRevisions);
      this.next = this.list.at(-1).revision;
    }
  }

  /** Takes older revisions in, which were asked for with before. */
  older(before, page) {
    if (before !== this.next) return;
    this.list = [...this.list, ...page.revisions];
    this.next = page.next ?? 0;
  }
}
