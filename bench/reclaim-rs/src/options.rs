// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments: whole numbers given as `--name VALUE`, some of them also as words.

use crate::fail;

pub struct Choice {
    pub name: &'static str,
    pub value: u64,
    pub min: u64,
    pub max: u64,
    /// Words that stand for 0, 1, 2 ...
    pub words: &'static [&'static str],
}

impl Choice {
    pub const fn number(name: &'static str, value: u64, min: u64, max: u64) -> Self {
        Choice {
            name,
            value,
            min,
            max,
            words: &[],
        }
    }

    pub const fn word(name: &'static str, words: &'static [&'static str]) -> Self {
        Choice {
            name,
            value: 0,
            min: 0,
            max: words.len() as u64 - 1,
            words,
        }
    }

    fn set(&mut self, text: &str) {
        let word = self.words.iter().position(|word| *word == text);
        let value = word.map_or_else(|| text.parse().ok(), |place| Some(place as u64));
        match value {
            Some(value) if (self.min..=self.max).contains(&value) => self.value = value,
            _ => fail(&format!(
                "--{} {text}: want a whole number from {} to {}",
                self.name, self.min, self.max
            )),
        }
    }
}

pub struct Options {
    choices: Vec<Choice>,
}

impl Options {
    /// `own` of the workload; every one also takes --plant-percent.
    pub fn parse(own: Vec<Choice>, arguments: &[String]) -> Self {
        let mut choices = own;
        choices.push(Choice::number("plant-percent", 0, 0, 100));
        for pair in arguments.chunks(2) {
            let name = pair[0].strip_prefix("--").unwrap_or_default();
            match choices.iter_mut().find(|choice| choice.name == name) {
                None => fail(&format!("unknown argument {}", pair[0])),
                Some(_) if pair.len() == 1 => fail(&format!("{} wants a value", pair[0])),
                Some(choice) => choice.set(&pair[1]),
            }
        }
        Options { choices }
    }

    pub fn get(&self, name: &str) -> u64 {
        let choice = self.choices.iter().find(|choice| choice.name == name);
        choice
            .unwrap_or_else(|| fail(&format!("no option {name}")))
            .value
    }

    pub fn all(&self) -> &[Choice] {
        &self.choices
    }
}
