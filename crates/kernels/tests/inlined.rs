//! Every instruction of a kernel is in the kernel itself. An intrinsic that stays a function of its own passes vectors
//! through memory: products were 40 times as slow where that happened, and no other test noticed.
#![cfg(all(target_arch = "x86_64", target_os = "linux", not(debug_assertions)))]

use draftscope_kernels::{Acts, Form, Isa, LANES, Onto, Tile, multiply};

/// A section of names in an ELF file.
const STRTAB: u32 = 3;

/// Names of this program's functions; those of inlined ones, which debugging information lists, are not among them.
fn function_names(elf: &[u8]) -> Vec<String> {
    let number = |at: usize, bytes: usize| {
        elf[at..at + bytes].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let (headers, size, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    let sections = (0..count).map(|index| headers + index * size);
    let names = sections.filter(|at| number(at + 4, 4) == STRTAB as usize).flat_map(|at| {
        let (start, len) = (number(at + 0x18, 8), number(at + 0x20, 8));
        elf[start..start + len].split(|byte| *byte == 0)
    });
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

#[test]
fn no_intrinsic_is_a_function_of_its_own() {
    // uses the kernels, so that the linker keeps them
    let (mut acts, mut out) = (Acts::default(), [[0.0; LANES]]);
    acts.shape(1, 0, Default::default());
    multiply(Isa::detect(), Tile { form: Form::Q5K, bytes: &[], alone: true }, &acts, Onto::Nothing, &mut out);
    let names = function_names(&std::fs::read(std::env::current_exe().unwrap()).unwrap());
    assert!(names.iter().any(|name| name.contains("draftscope_kernels")), "this program has no names");
    let alone: Vec<_> = names
        .iter()
        .filter(|name| (name.contains("core_arch") && name.contains("_mm")) || name.contains("in_turn"))
        .collect();
    assert!(alone.is_empty(), "{alone:#?}");
}
