//! What an experiment can be asked to vary, and the refusal of everything else.

use crate::failure::Failure;
use emulation::CopyMode;
use std::collections::BTreeMap;

/// What a parameter may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number.
    Number {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// Whole numbers with commas between them.
    Numbers {
        /// The least of each.
        min: u64,
        /// The most of each.
        max: u64,
    },
    /// One of these.
    Choice(&'static [&'static str]),
    /// One or more of these with commas between them.
    Choices(&'static [&'static str]),
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// What it is, with its unit.
    pub about: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it is when it is not given.
    pub default: &'static str,
}

impl Param {
    /// What it may be, in words.
    pub fn range(&self) -> String {
        match self.kind {
            Kind::Number { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Numbers { min, max } => {
                format!("whole numbers from {min} to {max} with commas between them")
            }
            Kind::Choice(names) => format!("one of {}", names.join(", ")),
            Kind::Choices(names) => format!("some of {} with commas between them", names.join(", ")),
        }
    }

    fn accepts(&self, value: &str) -> bool {
        let number = |text: &str, min, max| text.parse().is_ok_and(|n: u64| (min..=max).contains(&n));
        match self.kind {
            Kind::Number { min, max } => number(value, min, max),
            Kind::Numbers { min, max } => value.split(',').all(|text| number(text, min, max)),
            Kind::Choice(names) => names.contains(&value),
            Kind::Choices(names) => value.split(',').all(|text| names.contains(&text)),
        }
    }
}

/// The values of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params(BTreeMap<&'static str, String>);

impl Params {
    /// The defaults, changed by settings of the form `name=value`.
    ///
    /// # Errors
    /// A setting without `=`, an unknown name, or a value that the parameter may not have; with what there is.
    pub fn parse(experiment: &str, params: &[Param], settings: &[String]) -> Result<Self, Failure> {
        let mut values: BTreeMap<_, _> =
            params.iter().map(|param| (param.name, param.default.to_string())).collect();
        for setting in settings {
            let refused = |message: String| Failure::usage(message).hint(known(experiment, params));
            let Some((name, value)) = setting.split_once('=') else {
                return Err(refused(format!("--set {setting}: must be NAME=VALUE")));
            };
            let Some(param) = params.iter().find(|param| param.name == name) else {
                return Err(refused(format!("experiment {experiment} has no parameter {name}")));
            };
            if !param.accepts(value) {
                return Err(refused(format!("{name}={value}: must be {}", param.range())));
            }
            values.insert(param.name, value.to_string());
        }
        Ok(Self(values))
    }

    /// Each name with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// The text of a parameter. Panics when the experiment has none of this name.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("a parameter {name}"))
    }

    /// The way in which a disk copies. Panics for a parameter of another kind.
    pub fn copy_mode(&self, name: &str) -> CopyMode {
        CopyMode::ALL.into_iter().find(|mode| mode.name() == self.text(name)).expect("it was checked")
    }

    /// A number. Panics for a parameter of another kind.
    pub fn number(&self, name: &str) -> u64 {
        self.text(name).parse().expect("it was checked")
    }

    /// Numbers. Panics for a parameter of another kind.
    pub fn numbers(&self, name: &str) -> Vec<u64> {
        self.text(name).split(',').map(|text| text.parse().expect("it was checked")).collect()
    }

    /// Choices.
    pub fn choices(&self, name: &str) -> Vec<&str> {
        self.text(name).split(',').collect()
    }
}

/// The parameters of an experiment, for a hint.
fn known(experiment: &str, params: &[Param]) -> String {
    let names: Vec<_> = params.iter().map(|param| format!("{}={}", param.name, param.default)).collect();
    format!("parameters of {experiment} with their defaults: {}", names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    const PARAMS: [Param; 3] = [
        Param { name: "depth", about: "", kind: Kind::Number { min: 1, max: 64 }, default: "8" },
        Param { name: "kib", about: "", kind: Kind::Numbers { min: 4, max: 2048 }, default: "4,64" },
        Param { name: "mode", about: "", kind: Kind::Choice(&["remap", "memcpy"]), default: "remap" },
    ];

    fn parse(settings: &[&str]) -> Result<Params, Failure> {
        let settings: Vec<_> = settings.iter().map(|text| (*text).to_string()).collect();
        Params::parse("fabrics", &PARAMS, &settings)
    }

    #[test]
    fn settings_change_the_defaults() {
        let params = parse(&["kib=8,16", "mode=memcpy"]).unwrap();
        assert_eq!((params.number("depth"), params.numbers("kib")), (8, vec![8, 16]));
        assert_eq!(params.text("mode"), "memcpy");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_there_is() {
        for (setting, message) in [
            ("depth", "--set depth: must be NAME=VALUE"),
            ("dept=1", "experiment fabrics has no parameter dept"),
            ("depth=0", "depth=0: must be a whole number from 1 to 64"),
            ("depth=-1", "depth=-1: must be a whole number from 1 to 64"),
            ("kib=4,,8", "kib=4,,8: must be whole numbers from 4 to 2048 with commas between them"),
            ("mode=fast", "mode=fast: must be one of remap, memcpy"),
        ] {
            let failure = parse(&[setting]).unwrap_err();
            assert_eq!((failure.exit, failure.message.as_str()), (Exit::Usage, message));
            let hint = "parameters of fabrics with their defaults: depth=8 kib=4,64 mode=remap";
            assert_eq!(failure.hint.as_deref(), Some(hint));
        }
    }
}
