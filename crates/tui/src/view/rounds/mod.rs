//! The Rounds page and presenter mode: the ladder, one round as a table, a tree or boxes, the lines of the loop.

pub(super) mod grammar;
mod hidden_in_question;
pub(super) mod ladder;
pub(super) mod ladder_grid;
pub(super) mod ladder_row;
mod ladder_sums;
pub(super) mod lattice;
pub(super) mod loop_lines;
pub(super) mod presenter;
pub(super) mod presenter_boxes;
pub(super) mod round;
pub(super) mod token_cell;
pub(super) mod tree;
