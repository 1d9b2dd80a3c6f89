"""Tenants, their keys and their quotas."""
