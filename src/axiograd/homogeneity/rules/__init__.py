"""What each operator does to degrees: a table, functions for the rest, and a decorator for your own."""

from axiograd.homogeneity.rules import functions as functions, table as table
from axiograd.homogeneity.rules.registry import lookup as lookup, rule as rule
