"""Fine-tuning jobs of model providers: convert and check the data, upload them, and create, watch and fetch a job."""
