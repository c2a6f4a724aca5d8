//! What is kept of quizzes and statements between starts, and the certificate.
//!
//! Invariant: the file is untrusted. What cannot be read counts as nothing kept.

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::belief::Belief;
use super::statements::{Truth, right, statements};

/// Finished quizzes that are kept.
const MOST: usize = 50;

/// Answers and scores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Results {
    /// Answers to the statements before the lessons, in their order; empty until given.
    pub before: Vec<Truth>,
    /// The first answers after the lessons: later ones were given with the right answers known.
    pub after: Vec<Truth>,
    /// Finished quizzes, the newest last.
    pub quiz: Vec<Finished>,
}

/// A finished quiz.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Items judged rightly in full.
    pub score: u8,
    /// Items asked.
    pub of: u8,
    /// Time of all answers.
    pub seconds: u64,
    /// Of the wrong answers, by name.
    #[serde(default)]
    pub beliefs: Vec<String>,
}

impl Results {
    /// From the text of the file.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let mut results: Self = toml::from_str(text).unwrap_or_default();
        let count = statements().len();
        results.quiz.truncate(MOST);
        for answers in [&mut results.before, &mut results.after] {
            if answers.len() != count {
                answers.clear(); // of other statements
            }
        }
        results
    }

    /// As the text of the file.
    #[must_use]
    pub fn text(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// Adds a finished quiz.
    pub fn add(&mut self, finished: Finished) {
        self.quiz.push(finished);
        let over = self.quiz.len().saturating_sub(MOST);
        self.quiz.drain(..over);
    }

    /// Indices of the statements that were judged rightly after the lessons and not before, and of those that were judged
    /// wrongly after them; none until both were answered.
    #[must_use]
    pub fn changed(&self) -> Option<[Vec<usize>; 2]> {
        let all = statements();
        let is_right = |answers: &[Truth], at: usize| answers.get(at) == Some(&all[at].answer);
        if self.before.len() != all.len() || self.after.len() != all.len() {
            return None;
        }
        let learned = (0..all.len()).filter(|at| is_right(&self.after, *at) && !is_right(&self.before, *at));
        let wrong = (0..all.len()).filter(|at| !is_right(&self.after, *at));
        Some([learned.collect(), wrong.collect()])
    }

    /// Right answers to the statements before and after the lessons, as far as they were given.
    #[must_use]
    pub fn compared(&self) -> [Option<usize>; 2] {
        [&self.before, &self.after].map(|answers| (!answers.is_empty()).then(|| right(answers)))
    }
}

impl Finished {
    /// Beliefs of the wrong answers with how often each was met, the most frequent first.
    #[must_use]
    pub fn beliefs(&self) -> Vec<(Belief, usize)> {
        let known: Vec<Belief> = self.beliefs.iter().filter_map(|name| Belief::named(name)).collect();
        let mut counted: Vec<(Belief, usize)> = Vec::new();
        for belief in known {
            match counted.iter_mut().find(|(other, _)| *other == belief) {
                Some((_, count)) => *count += 1,
                None => counted.push((belief, 1)),
            }
        }
        counted.sort_by_key(|(belief, count)| (std::cmp::Reverse(*count), *belief));
        counted
    }
}

/// "7:05".
#[must_use]
pub fn minutes(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

/// What the lessons changed in the judgement of the statements, in lines; nothing until both were answered.
#[must_use]
pub fn changes(results: &Results) -> Vec<String> {
    let all = statements();
    let Some([learned, wrong]) = results.changed() else { return Vec::new() };
    let said = |at: &usize| format!("“{}”", all[*at].text);
    let mut lines = Vec::new();
    if !learned.is_empty() {
        let said: Vec<_> = learned.iter().map(said).collect();
        lines.push(format!("Learned ({}): {}", learned.len(), said.join(" ")));
    }
    if !wrong.is_empty() {
        let said: Vec<_> = wrong.iter().map(|at| format!("{} (lesson '{}')", said(at), all[*at].lesson)).collect();
        lines.push(format!("Still wrong ({}): {}", wrong.len(), said.join(" ")));
    }
    lines
}

/// The certificate as plain text.
#[must_use]
pub fn certificate(results: &Results) -> Option<String> {
    let quiz = results.quiz.last()?;
    let mut text = String::from("draftscope: rounds of speculative decoding, judged\n\n");
    let time = minutes(Duration::from_secs(quiz.seconds));
    let _ = writeln!(
        text,
        "Quiz: {} of {} rounds judged rightly, every draft and the token after them",
        quiz.score, quiz.of
    );
    let _ = writeln!(text, "Time: {time}");
    for (when, score) in ["before", "after"].iter().zip(results.compared()) {
        if let Some(score) = score {
            let _ = writeln!(text, "Statements {when} the lessons: {score} of {} right", statements().len());
        }
    }
    for line in changes(results) {
        let _ = writeln!(text, "{line}");
    }
    let beliefs = quiz.beliefs();
    if !beliefs.is_empty() {
        text.push_str("\nWhat the wrong answers fit:\n");
    }
    for (belief, count) in beliefs {
        let _ = writeln!(text, "  {count} x {} (lesson '{}')", belief.sentence(), belief.lesson().0);
    }
    Some(text)
}
