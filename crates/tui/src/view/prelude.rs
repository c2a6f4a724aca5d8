//! What nearly every panel needs: frames, lines and roles, the state, and the words of a round.

pub(super) use ratatui::Frame;
pub(super) use ratatui::layout::{Constraint, Layout, Rect};
pub(super) use ratatui::style::{Modifier, Style};
pub(super) use ratatui::text::{Line, Span};
pub(super) use unicode_width::UnicodeWidthStr;

pub(super) use crate::app::place::hit_map::{HitMap, Target};
pub(super) use crate::app::place::page::Page;
pub(super) use crate::input::action::Action;
pub(super) use crate::input::keymap::Context;
pub(super) use crate::look::fate;
pub(super) use crate::look::theme::Role;
pub(super) use crate::widgets::bars::bar;
pub(super) use crate::widgets::cell::{cut, fit, undecorated};
pub(super) use crate::widgets::flow::{Flow, wrapped};
pub(super) use draftscope_protocol::{Lane, counted};
pub(super) use draftscope_session::{Fate, Provenance, Round, Turn, text};

pub(super) use super::panel::{FRAME, boxed, framed, put};
pub(super) use super::screen::{CHANGE, CHOOSE, LEAVE, Screen};
