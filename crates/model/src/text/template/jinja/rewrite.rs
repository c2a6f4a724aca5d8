//! A template written again, with calls of [`super::operators`] in place of operators.
//!
//! Text and constants are escaped, so a line break in the new source only moves a statement to the line that it has in
//! the old one: errors name the right line.

use std::fmt::Write as _;

use minijinja::machinery::ast::{CallArg, Expr, ForLoop, IfCond, Macro, Stmt};
use minijinja::machinery::{self, Span};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, ErrorKind};

use super::limits::failure;

mod expression;

/// Most levels of statements and expressions within each other.
const MAX_DEPTH: usize = 300;

/// Most operands of one operator, and most branches of one `if`.
const MAX_CHAIN: usize = 1000;

/// What a tag that Jinja has and that chat templates cannot use becomes.
const ONLY_TEMPLATE: &str = "a chat template cannot use another template";

/// The new source.
///
/// # Errors
/// The place of a syntax error, or a statement that is not supported.
pub(super) fn rewritten(source: &str, syntax: SyntaxConfig) -> Result<String, Error> {
    let parsed = machinery::parse(source, super::limits::NAME, syntax)?;
    let mut writer = Writer { out: String::with_capacity(source.len() * 2), line: 1, depth: 0 };
    writer.statement(&parsed)?;
    Ok(writer.out)
}

struct Writer {
    out: String,
    /// The line that is written, from 1.
    line: u32,
    /// Statements and expressions that are being written.
    depth: usize,
}

impl Writer {
    /// Writes something that is one level deeper.
    fn deeper(&mut self, write: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        if self.depth == MAX_DEPTH {
            return Err(Error::new(ErrorKind::SyntaxError, format!("it is nested more than {MAX_DEPTH} levels deep")));
        }
        self.depth += 1;
        let written = write(self);
        self.depth -= 1;
        written
    }

    /// Checks the length of a chain of operands or branches.
    fn check_chain(&self, length: usize) -> Result<(), Error> {
        if length > MAX_CHAIN {
            return Err(Error::new(ErrorKind::SyntaxError, format!("an expression has more than {MAX_CHAIN} parts")));
        }
        Ok(())
    }

    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Begins a tag on the line that it has in the old source.
    fn open(&mut self, mark: &str, span: Span) {
        self.push(mark);
        let wanted = u32::from(span.start_line);
        while self.line < wanted {
            self.push("\n");
            self.line += 1;
        }
        self.push(" ");
    }

    fn body(&mut self, statements: &[Stmt<'_>]) -> Result<(), Error> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Stmt<'_>) -> Result<(), Error> {
        self.deeper(|writer| writer.any_statement(statement))
    }

    fn any_statement(&mut self, statement: &Stmt<'_>) -> Result<(), Error> {
        match statement {
            Stmt::Template(template) => self.body(&template.children),
            Stmt::EmitRaw(raw) => {
                self.open("{{", raw.span());
                self.string(raw.raw);
                self.push(" }}");
                Ok(())
            }
            Stmt::EmitExpr(emit) => {
                self.open("{{", emit.span());
                self.expression(&emit.expr)?;
                self.push(" }}");
                Ok(())
            }
            Stmt::ForLoop(each) => self.for_loop(each, each.span()),
            Stmt::IfCond(condition) => self.condition("if ", condition, condition.span()),
            Stmt::Set(set) => {
                self.open("{%", set.span());
                self.push("set ");
                self.target(&set.target)?;
                self.push(" = ");
                self.expression(&set.expr)?;
                self.push(" %}");
                Ok(())
            }
            Stmt::SetBlock(set) => {
                self.open("{%", set.span());
                self.push("set ");
                self.target(&set.target)?;
                if let Some(filter) = &set.filter {
                    self.push(" | ");
                    self.filter_chain(filter)?;
                }
                self.enclosed(&set.body, "endset")
            }
            Stmt::WithBlock(with) => {
                self.open("{%", with.span());
                self.push("with ");
                for (at, (target, value)) in with.assignments.iter().enumerate() {
                    self.push(if at > 0 { ", " } else { "" });
                    self.target(target)?;
                    self.push(" = ");
                    self.expression(value)?;
                }
                self.enclosed(&with.body, "endwith")
            }
            Stmt::FilterBlock(filter) => {
                self.open("{%", filter.span());
                self.push("filter ");
                self.filter_chain(&filter.filter)?;
                self.enclosed(&filter.body, "endfilter")
            }
            Stmt::AutoEscape(escape) if !matches!(&escape.enabled, Expr::Const(flag) if flag.value.is_true()) => {
                self.body(&escape.body)
            }
            Stmt::AutoEscape(_) => Err(failure("autoescape is not supported in chat templates")),
            Stmt::Block(block) => {
                self.open("{%", block.span());
                let _ = write!(self.out, "block {}", block.name);
                self.enclosed(&block.body, "endblock")
            }
            Stmt::Macro(own) => {
                self.open("{%", own.span());
                let _ = write!(self.out, "macro {}", own.name);
                self.parameters(own)?;
                self.push(" %}");
                self.late_defaults(own)?;
                self.body(&own.body)?;
                self.push("{% endmacro %}");
                Ok(())
            }
            Stmt::CallBlock(block) => {
                self.open("{%", block.span());
                self.push("call");
                self.parameters(&block.macro_decl)?;
                self.push(" ");
                self.call(&block.call)?;
                self.push(" %}");
                self.late_defaults(&block.macro_decl)?;
                self.body(&block.macro_decl.body)?;
                self.push("{% endcall %}");
                Ok(())
            }
            Stmt::Continue(_) => {
                self.push("{% continue %}");
                Ok(())
            }
            Stmt::Break(_) => {
                self.push("{% break %}");
                Ok(())
            }
            Stmt::Do(_) => Err(Error::new(ErrorKind::SyntaxError, "there is no tag `do` in chat templates")),
            Stmt::Import(import) => self.refusal(import.span()),
            Stmt::FromImport(import) => self.refusal(import.span()),
            Stmt::Extends(extends) => self.refusal(extends.span()),
            Stmt::Include(include) => self.refusal(include.span()),
        }
    }

    /// An error if the statement is reached.
    fn refusal(&mut self, span: Span) -> Result<(), Error> {
        self.open("{{", span);
        let _ = write!(self.out, "raise_exception('{ONLY_TEMPLATE}') }}}}");
        Ok(())
    }

    /// Ends a tag, and writes what it encloses and its end.
    fn enclosed(&mut self, body: &[Stmt<'_>], end: &str) -> Result<(), Error> {
        self.push(" %}");
        self.body(body)?;
        let _ = write!(self.out, "{{% {end} %}}");
        Ok(())
    }

    fn for_loop(&mut self, each: &ForLoop<'_>, span: Span) -> Result<(), Error> {
        self.open("{%", span);
        self.push("for ");
        self.target(&each.target)?;
        self.push(" in _py_each(");
        self.expression(&each.iter)?;
        self.push(")");
        if let Some(filter) = &each.filter_expr {
            self.push(" if ");
            self.expression(filter)?;
        }
        if each.recursive {
            self.push(" recursive");
        }
        self.push(" %}");
        self.body(&each.body)?;
        if !each.else_body.is_empty() {
            self.push("{% else %}");
            self.body(&each.else_body)?;
        }
        self.push("{% endfor %}");
        Ok(())
    }

    /// An `if` with all that follows it: a chain of `elif` stays a chain, since the parser limits nesting.
    fn condition(&mut self, word: &str, first: &IfCond<'_>, span: Span) -> Result<(), Error> {
        let (mut word, mut condition, mut span, mut branches) = (word, first, span, 0);
        loop {
            branches += 1;
            self.check_chain(branches)?;
            self.open("{%", span);
            self.push(word);
            self.expression(&condition.expr)?;
            self.push(" %}");
            self.body(&condition.true_body)?;
            match condition.false_body.as_slice() {
                [] => break,
                [Stmt::IfCond(next)] => (word, condition, span) = ("elif ", next, next.span()),
                others => {
                    self.push("{% else %}");
                    self.body(others)?;
                    break;
                }
            }
        }
        self.push("{% endif %}");
        Ok(())
    }

    /// Parameters of a macro; a default that is no constant is set by [`Self::late_defaults`].
    fn parameters(&mut self, own: &Macro<'_>) -> Result<(), Error> {
        self.push("(");
        let first_default = own.args.len() - own.defaults.len();
        for (at, arg) in own.args.iter().enumerate() {
            self.push(if at > 0 { ", " } else { "" });
            self.target(arg)?;
            match at.checked_sub(first_default).map(|at| &own.defaults[at]) {
                Some(default @ Expr::Const(_)) => {
                    self.push("=");
                    self.expression(default)?;
                }
                Some(_) => self.push("=_py_unset"),
                None => {}
            }
        }
        self.push(")");
        Ok(())
    }

    /// Defaults that may use the parameters before them, which minijinja does not know yet when it needs them.
    fn late_defaults(&mut self, own: &Macro<'_>) -> Result<(), Error> {
        let first_default = own.args.len() - own.defaults.len();
        for (arg, default) in own.args[first_default..].iter().zip(&own.defaults) {
            if matches!(default, Expr::Const(_)) {
                continue;
            }
            self.push("{% if ");
            self.target(arg)?;
            self.push(" is undefined %}{% set ");
            self.target(arg)?;
            self.push(" = ");
            self.expression(default)?;
            self.push(" %}{% endif %}");
        }
        Ok(())
    }

    /// The left side of an assignment.
    fn target(&mut self, target: &Expr<'_>) -> Result<(), Error> {
        match target {
            Expr::Var(variable) => self.push(variable.id),
            Expr::Tuple(tuple) => self.targets(&tuple.items)?,
            Expr::List(list) => self.targets(&list.items)?,
            Expr::GetAttr(field) => {
                self.target(&field.expr)?;
                let _ = write!(self.out, ".{}", field.name);
            }
            other => return Err(failure(format!("nothing can be assigned to this {}", other.description()))),
        }
        Ok(())
    }

    fn targets(&mut self, items: &[Expr<'_>]) -> Result<(), Error> {
        self.push("(");
        for item in items {
            self.target(item)?;
            self.push(", ");
        }
        self.push(")");
        Ok(())
    }

    /// The filters of a block, without the value that they begin with.
    fn filter_chain(&mut self, filter: &Expr<'_>) -> Result<(), Error> {
        let Expr::Filter(own) = filter else { return Err(failure("a block can only be filtered")) };
        if let Some(before) = &own.expr {
            self.filter_chain(before)?;
            self.push("|");
        }
        self.push(own.name);
        self.arguments(&own.args)
    }

    fn arguments(&mut self, args: &[CallArg<'_>]) -> Result<(), Error> {
        self.push("(");
        for (at, arg) in args.iter().enumerate() {
            self.push(if at > 0 { ", " } else { "" });
            let value = match arg {
                CallArg::Pos(value) => value,
                CallArg::Kwarg(name, value) => {
                    let _ = write!(self.out, "{name}=");
                    value
                }
                CallArg::PosSplat(value) => {
                    self.push("*");
                    value
                }
                CallArg::KwargSplat(value) => {
                    self.push("**");
                    value
                }
            };
            self.expression(value)?;
        }
        self.push(")");
        Ok(())
    }
}
