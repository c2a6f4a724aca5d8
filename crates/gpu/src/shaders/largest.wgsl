// The first of the largest logits of WIDTH invocations: the one with the lowest index among equal ones, in place 0.
const LOWEST = -3.4028234e38;
var<workgroup> best: array<f32, WIDTH>;
var<workgroup> place: array<u32, WIDTH>;

fn precedes(a: f32, i: u32, b: f32, j: u32) -> bool { return a > b || (a == b && i < j); }

fn first_of_all(t: u32, logit: f32, index: u32) {
    best[t] = logit;
    place[t] = index;
    workgroupBarrier();
    for (var step = WIDTH / 2u; step > 0u; step /= 2u) {
        if t < step && precedes(best[t + step], place[t + step], best[t], place[t]) {
            best[t] = best[t + step];
            place[t] = place[t + step];
        }
        workgroupBarrier();
    }
}
