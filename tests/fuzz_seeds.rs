//! The seeds of the fuzz targets, replayed through the same functions without an instrumented build. Each target has a
//! process of its own with a limit on its memory, so that a seed for which too much is allocated fails.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "../fuzz/checks/mod.rs"]
#[allow(missing_docs, unreachable_pub, reason = "shared with the fuzz targets")]
mod checks;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Most address space of a process that replays seeds, in kB. Threads and mapped files count.
const MEMORY: u64 = 2 << 20;

/// Names the target whose seeds a process replays.
const TARGET: &str = "DRAFTSCOPE_FUZZ_TARGET";

/// Seconds for which each target then gets seeds with random damage. Less searching than `fuzz/run.sh`, since nothing is
/// instrumented, but with the program as it is shipped.
const SECONDS: &str = "DRAFTSCOPE_FUZZ_SECONDS";

fn seeds(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut seeds: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    seeds
}

/// Every target takes its seeds with little memory. This file has its own `main`, because a process of it also renders
/// chat templates, as the program does.
fn main() {
    if draftscope::model::text::template::process::start().is_some() {
        return;
    }
    if let Ok(target) = std::env::var(TARGET) {
        return replay(&target);
    }
    let folders = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds")).unwrap();
    assert_eq!(folders.count(), checks::CHECKS.len(), "each target has a folder of seeds");
    for (target, _) in checks::CHECKS {
        assert!(seeds(target).len() >= 3, "{target} has few seeds");
        let mut process = Command::new("sh");
        process.args(["-c", &format!("ulimit -v {MEMORY}; exec \"$0\"")]).arg(std::env::current_exe().unwrap());
        let out = process.env(TARGET, target).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.ends_with("replayed\n"), "{target}: {said}");
        let counted = said.lines().rev().find(|line| line.starts_with("damaged")).unwrap_or_default();
        println!("{target}: {} seeds {counted}", seeds(target).len());
    }
}

fn replay(target: &str) {
    let (_, check) = checks::CHECKS.iter().find(|(name, _)| *name == target).unwrap();
    for seed in seeds(target) {
        println!("{}", seed.display());
        let bytes = fs::read(&seed).unwrap();
        check(&bytes);
        // cut and damaged, as a fuzzer begins
        for part in 1..8 {
            check(&bytes[..bytes.len() * part / 8]);
            let mut damaged = bytes.clone();
            if let Some(byte) = damaged.get_mut(bytes.len() * part / 8) {
                *byte ^= 0xff;
            }
            check(&damaged);
        }
    }
    if let Some(seconds) = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()) {
        damage(target, *check, Duration::from_secs(seconds));
    }
    checks::clean_up();
    println!("replayed");
}

/// Checks damaged seeds for some time. The newest one is in a file, in case it ends the process.
fn damage(target: &str, check: fn(&[u8]), time: Duration) {
    let seeds: Vec<Vec<u8>> = seeds(target).iter().map(|seed| fs::read(seed).unwrap()).collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let (mut random, began, mut count, mut slowest) = (Random(now | 1), Instant::now(), 0_u64, Duration::ZERO);
    let newest = std::env::temp_dir().join(format!("draftscope-damaged-{target}"));
    while began.elapsed() < time {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(6) {
            random.damage(&mut bytes, &seeds);
        }
        fs::write(&newest, &bytes).unwrap();
        let start = Instant::now();
        check(&bytes);
        slowest = slowest.max(start.elapsed());
        count += 1;
    }
    fs::remove_file(newest).unwrap();
    println!("damaged {count} times, at most {} ms each", slowest.as_millis());
}

/// A generator of random numbers (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Changes, removes, repeats or inserts some bytes.
    fn damage(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        const ODD: [&[u8]; 12] = [
            b"\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\0\0\0\0\0\0\0\0",
            b"\0\0\0\x80",
            b"-1",
            b"1e999",
            b"null",
            b"[[[[",
            b"\x1b[2J",
            b"9223372036854775808",
            b"\\ud800",
            b"{}",
            b"\"",
        ];
        let at = self.below(bytes.len() + 1);
        let end = at + self.below((bytes.len() - at).min(64) + 1);
        match self.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = self.next() as u8,
            2 => drop(bytes.drain(at..end)),
            3 => drop(bytes.splice(at..end, ODD[self.below(ODD.len())].iter().copied())),
            4 => bytes.extend_from_within(at..end),
            5 => {
                let other = &seeds[self.below(seeds.len())];
                let from = self.below(other.len() + 1);
                let to = from + self.below((other.len() - from).min(256) + 1);
                drop(bytes.splice(at..end, other[from..to].iter().copied()));
            }
            _ if self.below(8) == 0 => bytes.truncate(at),
            _ => {}
        }
        bytes.truncate(64 << 10);
    }
}
