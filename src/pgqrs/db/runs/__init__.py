"""What changes a run, each verb one transaction: trigger, claim, settle, and the transitions from outside."""
