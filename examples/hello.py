import pgqrs
@pgqrs.step
def greet(name: str) -> str:
    return f"Hello, {name}"
@pgqrs.step
def shout(text: str) -> str:
    return f"{text.upper()}!"
@pgqrs.workflow
def hello(name: str) -> str:
    return shout(greet(name))
if __name__ == "__main__": print(hello("world"))
