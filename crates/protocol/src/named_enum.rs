//! Enums whose values have names: their list, the name of each, and reading a name follow from one row a value.

/// Defines an enum from its values and their names; with `from "what"` it is read from a name, and an error lists all.
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident { $($(#[$text:meta])* $value:ident = $as:literal),+ $(,)? }
        $(from $what:literal)?
    ) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$text])* $value),+
        }

        impl $name {
            /// Every value, in the order in which they are listed.
            $vis const ALL: &'static [Self] = &[$(Self::$value),+];
            /// Their names, in the same order.
            #[allow(dead_code)] // some are only shown, never listed
            $vis const NAMES: &'static [&'static str] = &[$($as),+];

            /// Name in flags, JSON and on screen.
            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self { $(Self::$value => $as),+ }
            }
        }

        $(impl std::str::FromStr for $name {
            type Err = $crate::SettingsError;
            fn from_str(name: &str) -> Result<Self, Self::Err> {
                $crate::named(Self::ALL, name, Self::name, $what)
            }
        })?
    };
}
