// The first of the largest logits of WIDTH invocations: the one with the lowest index among equal ones, in place 0.
const LOWEST = -3.4028234e38;
var<workgroup> best: array<f32, WIDTH>;
var<workgroup> place: array<u32, WIDTH>;

fn precedes(a: f32, i: u32, b: f32, j: u32) -> bool { return a > b || (a == b && i < j); }

const PART = select(16u, 8u, WIDTH == 64u); // its square is WIDTH

// Leaves the first of PART places `step` apart in the first of them.
fn first_of(start: u32, step: u32) {
    var top = best[start];
    var at = place[start];
    for (var i = 1u; i < PART; i++) {
        let b = best[start + i * step];
        let p = place[start + i * step];
        if precedes(b, p, top, at) { top = b; at = p; }
    }
    best[start] = top;
    place[start] = at;
}

fn first_of_all(t: u32, logit: f32, index: u32) {
    best[t] = logit;
    place[t] = index;
    workgroupBarrier();
    if t < PART { first_of(t * PART, 1u); }
    workgroupBarrier();
    if t == 0u { first_of(0u, PART); }
    workgroupBarrier();
}
