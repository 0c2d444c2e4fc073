"""Rows of a table explained: DataFrames in, DataFrames out."""

from axiograd.tables.explaining import TableExplanation as TableExplanation, explain as explain
