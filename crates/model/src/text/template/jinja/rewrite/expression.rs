//! Expressions of a template, written again.

use std::fmt::Write as _;

use minijinja::machinery::ast::{BinOp, BinOpKind, Call, CompareOpKind, Expr, UnaryOpKind};
use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::{Writer, failure};

impl Writer {
    /// Writes an expression in parentheses, unless none are needed.
    pub(super) fn expression(&mut self, expression: &Expr<'_>) -> Result<(), Error> {
        self.deeper(|writer| writer.any_expression(expression))
    }

    fn any_expression(&mut self, expression: &Expr<'_>) -> Result<(), Error> {
        match expression {
            Expr::Var(variable) => self.push(variable.id),
            Expr::Const(constant) => self.constant(&constant.value)?,
            Expr::UnaryOp(unary) => {
                self.push(match unary.op {
                    UnaryOpKind::Not => "(not ",
                    UnaryOpKind::Neg => "_py_negative(",
                });
                self.expression(&unary.expr)?;
                self.push(")");
            }
            Expr::BinOp(binary) => self.binary(binary)?,
            Expr::Compare(chain) => {
                self.push("_py_compare(");
                self.expression(&chain.expr)?;
                for step in &chain.ops {
                    let _ = write!(self.out, ", '{}', ", comparison(step.op));
                    self.expression(&step.expr)?;
                }
                self.push(")");
            }
            Expr::IfExpr(choice) => {
                self.push("(");
                self.expression(&choice.true_expr)?;
                self.push(" if ");
                self.expression(&choice.test_expr)?;
                if let Some(other) = &choice.false_expr {
                    self.push(" else ");
                    self.expression(other)?;
                }
                self.push(")");
            }
            Expr::Filter(filter) => {
                let Some(value) = &filter.expr else { return Err(failure("a filter has no value")) };
                self.expression(value)?;
                let _ = write!(self.out, "|{}", filter.name);
                self.arguments(&filter.args)?;
            }
            Expr::Test(test) => {
                self.push("(");
                self.expression(&test.expr)?;
                let _ = write!(self.out, " is {}", test.name);
                if !test.args.is_empty() {
                    self.arguments(&test.args)?;
                }
                self.push(")");
            }
            Expr::GetAttr(field) => {
                self.operand(&field.expr)?;
                let _ = write!(self.out, ".{}", field.name);
            }
            Expr::GetItem(item) => {
                self.operand(&item.expr)?;
                self.push("[");
                self.expression(&item.subscript_expr)?;
                self.push("]");
            }
            Expr::Slice(slice) => {
                self.push("_py_slice(");
                self.expression(&slice.expr)?;
                for bound in [&slice.start, &slice.stop, &slice.step] {
                    self.push(", ");
                    match bound {
                        Some(bound) => self.expression(bound)?,
                        None => self.push("none"),
                    }
                }
                self.push(")");
            }
            Expr::Call(call) => self.call(call)?,
            Expr::List(list) => self.items("[", &list.items, "]")?,
            Expr::Tuple(tuple) if tuple.items.len() == 1 => self.items("(", &tuple.items, ",)")?,
            Expr::Tuple(tuple) => self.items("(", &tuple.items, ")")?,
            Expr::Map(map) => {
                self.push("{");
                for (key, value) in map.keys.iter().zip(&map.values) {
                    self.expression(key)?;
                    self.push(": ");
                    self.expression(value)?;
                    self.push(", ");
                }
                self.push("}");
            }
        }
        Ok(())
    }

    fn items(&mut self, open: &str, items: &[Expr<'_>], close: &str) -> Result<(), Error> {
        self.push(open);
        for (at, item) in items.iter().enumerate() {
            self.push(if at > 0 { ", " } else { "" });
            self.expression(item)?;
        }
        self.push(close);
        Ok(())
    }

    /// What a dot, a bracket or a call follows.
    fn operand(&mut self, expression: &Expr<'_>) -> Result<(), Error> {
        let plain =
            matches!(expression, Expr::Var(_) | Expr::GetAttr(_) | Expr::GetItem(_) | Expr::Call(_) | Expr::Slice(_));
        self.push(if plain { "" } else { "(" });
        self.expression(expression)?;
        self.push(if plain { "" } else { ")" });
        Ok(())
    }

    pub(super) fn call(&mut self, call: &Call<'_>) -> Result<(), Error> {
        match &call.expr {
            Expr::GetAttr(method) => {
                self.operand(&method.expr)?;
                let _ = write!(self.out, ".{}", method.name);
            }
            other => self.operand(other)?,
        }
        self.arguments(&call.args)
    }

    fn binary(&mut self, binary: &BinOp<'_>) -> Result<(), Error> {
        let function = match binary.op {
            BinOpKind::ScAnd => return self.chain(binary, " and "),
            BinOpKind::ScOr => return self.chain(binary, " or "),
            BinOpKind::Add => "_py_add",
            BinOpKind::Concat => "_py_concat",
            BinOpKind::Sub => return self.chain(binary, " - "),
            BinOpKind::Div => return self.chain(binary, " / "),
            BinOpKind::FloorDiv => return self.chain(binary, " // "),
            BinOpKind::Pow => return self.chain(binary, " ** "),
            BinOpKind::Mul => "_py_multiply",
            BinOpKind::Rem => "_py_modulo",
            BinOpKind::Eq => return self.compared(binary, "=="),
            BinOpKind::Ne => return self.compared(binary, "!="),
            BinOpKind::Lt => return self.compared(binary, "<"),
            BinOpKind::Lte => return self.compared(binary, "<="),
            BinOpKind::Gt => return self.compared(binary, ">"),
            BinOpKind::Gte => return self.compared(binary, ">="),
            BinOpKind::In => return self.compared(binary, "in"),
        };
        self.push(function);
        self.push("(");
        let (first, others) = self.operands(binary)?;
        self.expression(first)?;
        for operand in others {
            self.push(", ");
            self.expression(operand)?;
        }
        self.push(")");
        Ok(())
    }

    /// The operands of `a + b + c`, which is one operator to the writer, since the parser limits nesting.
    fn operands<'e, 's>(&self, binary: &'e BinOp<'s>) -> Result<(&'e Expr<'s>, Vec<&'e Expr<'s>>), Error> {
        let kind = std::mem::discriminant(&binary.op);
        let (mut others, mut first) = (vec![&binary.right], &binary.left);
        while let Expr::BinOp(inner) = first {
            if std::mem::discriminant(&inner.op) != kind || matches!(inner.op, BinOpKind::Pow) {
                break;
            }
            others.push(&inner.right);
            first = &inner.left;
        }
        others.reverse();
        self.check_chain(others.len())?;
        Ok((first, others))
    }

    /// An operator that stays; one of the same kind on its left needs no parentheses.
    fn chain(&mut self, binary: &BinOp<'_>, operator: &str) -> Result<(), Error> {
        self.push("(");
        let (first, others) = self.operands(binary)?;
        self.expression(first)?;
        for operand in others {
            self.push(operator);
            self.expression(operand)?;
        }
        self.push(")");
        Ok(())
    }

    fn compared(&mut self, binary: &BinOp<'_>, operator: &str) -> Result<(), Error> {
        self.push("_py_compare(");
        self.expression(&binary.left)?;
        let _ = write!(self.out, ", '{operator}', ");
        self.expression(&binary.right)?;
        self.push(")");
        Ok(())
    }

    fn constant(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.push("none"),
            ValueKind::Bool => self.push(if value.is_true() { "true" } else { "false" }),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Number if value.is_integer() => {
                let _ = write!(self.out, "{value}");
            }
            ValueKind::Number => match f64::try_from(value.clone()) {
                Ok(float) if float.is_finite() => {
                    let _ = write!(self.out, "{float:?}");
                }
                _ => self.push("1e999"),
            },
            kind => return Err(failure(format!("a constant of type {kind} is not supported"))),
        }
        Ok(())
    }

    /// A string literal on one line.
    pub(super) fn string(&mut self, text: &str) {
        self.push("\"");
        for c in text.chars() {
            match c {
                '"' => self.push("\\\""),
                '\\' => self.push("\\\\"),
                '\n' => self.push("\\n"),
                '\r' => self.push("\\r"),
                other => self.out.push(other),
            }
        }
        self.push("\"");
    }
}

fn comparison(operator: CompareOpKind) -> &'static str {
    match operator {
        CompareOpKind::Eq => "==",
        CompareOpKind::Ne => "!=",
        CompareOpKind::Lt => "<",
        CompareOpKind::Lte => "<=",
        CompareOpKind::Gt => ">",
        CompareOpKind::Gte => ">=",
        CompareOpKind::In => "in",
        CompareOpKind::NotIn => "not in",
    }
}
