//! Which instruction set runs the kernels: found once at start, chosen in tests.
//!
//! [`Isa::run`] is the only way from ordinary code into vector code: it enters a function compiled for the instruction
//! set, and the generic kernel is inlined into it.

#[cfg(target_arch = "aarch64")]
use crate::neon::Neon;
use crate::portable::Portable;
use crate::simd::Lanes;
#[cfg(target_arch = "x86_64")]
use crate::{avx2::Avx2, avx512::Avx512};

/// A computation written over [`Lanes`]; `run` must be `#[inline(always)]`.
pub trait Kernel {
    /// Its result.
    type Output;

    fn run<S: Lanes>(self, s: S) -> Self::Output;
}

/// An instruction set. All of them give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

/// Gives kernels a method that this crate compiles for every instruction set, so that callers compile none of it.
macro_rules! kernels {
    ($($kernel:ty => $output:ty),* $(,)?) => {
        $(impl $kernel {
            /// Runs it with the instructions of `isa`.
            pub fn run_on(self, isa: $crate::isa::Isa) -> $output {
                isa.run(self)
            }
        })*
    };
}

pub(crate) use kernels;

impl Isa {
    /// Plain code for any processor.
    pub const PORTABLE: Self = Self(Set::Portable);

    /// The fastest one of this processor.
    #[must_use]
    pub fn detect() -> Self {
        Self::available().next_back().unwrap_or(Self::PORTABLE)
    }

    /// All of this processor, slowest first.
    #[must_use]
    pub fn available() -> impl DoubleEndedIterator<Item = Self> {
        ALL.iter().copied().filter(|set| set.is_supported()).map(Self)
    }

    /// Its usual name, e.g. `avx512-vnni`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::AvxVnni => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => "avx512-vnni",
            #[cfg(target_arch = "aarch64")]
            Set::Neon => "neon",
        }
    }

    /// Rows whose sums fit into the registers of an integer kernel.
    pub fn rows(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => 8,
            _ => 4,
        }
    }

    /// Runs `kernel` with these instructions.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Set::Portable => kernel.run(Portable),
            // SAFETY (all four): only `available` makes an `Isa`, after asking the processor.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { run_avx2(kernel) },
            #[cfg(target_arch = "x86_64")]
            Set::AvxVnni => unsafe { run_avx_vnni(kernel) },
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { run_avx512(kernel) },
            #[cfg(target_arch = "aarch64")]
            Set::Neon => unsafe { run_neon(kernel) },
        }
    }
}

/// Slowest first.
const ALL: &[Set] = &[
    Set::Portable,
    #[cfg(target_arch = "x86_64")]
    Set::Avx2,
    #[cfg(target_arch = "x86_64")]
    Set::AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Set::Avx512,
    #[cfg(target_arch = "aarch64")]
    Set::Neon,
];

impl Set {
    #[cfg(target_arch = "x86_64")]
    fn is_supported(self) -> bool {
        let avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        match self {
            Self::Portable => true,
            Self::Avx2 => avx2,
            Self::AvxVnni => avx2 && is_x86_feature_detected!("avxvnni"),
            Self::Avx512 => {
                avx2 && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn is_supported(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Neon => cfg!(target_endian = "little") && std::arch::is_aarch64_feature_detected!("dotprod"),
        }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn is_supported(self) -> bool {
        true
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller of this function has the features.
    kernel.run(unsafe { Avx2::<false>::new() })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn run_avx_vnni<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller of this function has the features.
    kernel.run(unsafe { Avx2::<true>::new() })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,f16c,fma,avx2")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller of this function has the features.
    kernel.run(unsafe { Avx512::new() })
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod")]
fn run_neon<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller of this function has the features.
    kernel.run(unsafe { Neon::new() })
}
